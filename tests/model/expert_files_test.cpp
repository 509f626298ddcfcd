// Files of mixtures of experts: tensors of single experts, stacked tensors, GGUF, and errors.

#include "convert/gguf_export.hpp"
#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "model/expert_rig.hpp"
#include "model/model_tensors.hpp"
#include "support/error_text.hpp"

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::vector<float> logits_of(const fs::path &model, const std::string &weights = "stored") {
    const auto pipeline = open_exact(model, "cpu", {"model.weights=" + weights});
    Session session(*pipeline);
    session.prefill(expert_cases().front().ids);
    const auto logits = session.logits();
    return {logits.begin(), logits.end()};
}

WrittenTensor &tensor(std::vector<WrittenTensor> &all, const std::string &name) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const WrittenTensor &t) { return t.name == name; });
    REQUIRE(found != all.end());
    return *found;
}

// Replaces the matrices of single experts by the stacked tensors that transformers 5 writes.
std::vector<WrittenTensor> stacked(const Miniature &m) {
    const Architecture &a =
        *find_architecture(m.config.at("architectures").at(0).get<std::string>());
    const LayerNames &n = a.names;
    std::vector<WrittenTensor> out;
    std::map<std::string, WrittenTensor> stacks;
    for (WrittenTensor &t : make_tensors(m)) {
        const size_t at = t.name.find(fmt::format(".{}.", n.experts));
        if (at == std::string::npos) {
            const std::string router = fmt::format(".{}.weight", n.router);
            if (t.name.ends_with(router))
                t.name = t.name.substr(0, t.name.size() - router.size()) + ".mlp.gate.weight";
            out.push_back(std::move(t));
            continue;
        }
        const bool is_down = t.name.ends_with(fmt::format(".{}.weight", n.expert_down));
        const bool is_gate = t.name.ends_with(fmt::format(".{}.weight", n.expert_gate));
        WrittenTensor &stack =
            stacks[t.name.substr(0, at) +
                   (is_down ? ".mlp.experts.down_proj" : ".mlp.experts.gate_up_proj")];
        if (stack.shape.empty())
            stack.shape = {0, is_down ? t.shape[0] : 2 * t.shape[0], t.shape[1]};
        if (is_down || is_gate) ++stack.shape[0];
        // The golden file lists gate, up and down of each expert in this order.
        stack.values.insert(stack.values.end(), t.values.begin(), t.values.end());
    }
    for (auto &[name, stack] : stacks) {
        stack.name = name;
        out.push_back(stack);
    }
    return out;
}

ExportReport write_gguf(const fs::path &model, const fs::path &to, keel_dtype type) {
    ExportOptions options;
    options.type = type;
    options.tokenizer = false;
    options.overwrite = true;
    return export_gguf(*open_model_source(model), to, options);
}

std::string load_error(const Miniature &m, const std::vector<WrittenTensor> &tensors) {
    const TempFolder folder;
    write_miniature(folder / "m", m, tensors);
    return error_text([&] { (void)check_model_tensors(*open_model_source(folder / "m")); });
}

std::string config_error(const std::string &name, const std::string &key,
                         const nlohmann::json &value) {
    Miniature m = expert_miniature(name);
    m.config[key] = value;
    return load_error(m, make_tensors(m));
}

} // namespace

TEST_CASE("stacked tensors of experts give bitwise the logits of single tensors") {
    for (const Miniature &m : expert_miniatures()) {
        INFO(m.name);
        const TempFolder folder;
        write_miniature(folder / "single", m);
        write_miniature(folder / "stacked", m, stacked(m));
        CHECK(open_model_source(folder / "stacked")->tensors().size() ==
              open_model_source(folder / "single")->tensors().size());
        CHECK(logits_of(folder / "stacked") == logits_of(folder / "single"));
    }
}

TEST_CASE("mixtures of experts come back from GGUF unchanged, in every type") {
    for (const Miniature &m : expert_miniatures()) {
        const TempFolder folder;
        write_miniature(folder / "m", m);
        if (m.name == "qwen3moe_all") {
            CHECK_THAT(
                error_text([&] { write_gguf(folder / "m", folder / "m.gguf", KEEL_DTYPE_F32); }),
                Contains("GGUF cannot represent this value of norm_topk_prob"));
            continue;
        }
        for (const keel_dtype type : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_Q4_0}) {
            INFO(m.name << ", " << keel_dtype_name(type));
            const fs::path file = folder / "m.gguf";
            write_gguf(folder / "m", file, type);
            CHECK(logits_of(file) == logits_of(folder / "m", keel_dtype_name(type)));
        }
        // A GGUF file is the source of another one.
        write_gguf(folder / "m", folder / "a.gguf", KEEL_DTYPE_F32);
        write_gguf(folder / "a.gguf", folder / "b.gguf", KEEL_DTYPE_Q4_0);
        CHECK(logits_of(folder / "b.gguf") == logits_of(folder / "m.gguf"));
    }
}

TEST_CASE("GGUF files have the tensors and keys of experts that other programs expect") {
    const TempFolder folder;
    write_miniature(folder / "m", expert_miniature("qwen2moe"));
    write_gguf(folder / "m", folder / "m.gguf", KEEL_DTYPE_Q4_0);
    const GgufFile file(folder / "m.gguf");
    CHECK(file.text("general.architecture") == "qwen2moe");
    CHECK(file.integer("qwen2moe.expert_count") == 5);
    CHECK(file.integer("qwen2moe.expert_used_count") == 2);
    CHECK(file.integer("qwen2moe.expert_feed_forward_length") == 32);
    CHECK(file.integer("qwen2moe.expert_shared_feed_forward_length") == 64);
    const auto shape = [&](const std::string &name) {
        for (const GgufTensor &t : file.tensors())
            if (t.name == name) return fmt::format("{} {}", t.type->name, shape_text(t.shape));
        return std::string("missing");
    };
    CHECK(shape("blk.1.ffn_gate_exps.weight") == "Q4_0 [5, 32, 64]");
    CHECK(shape("blk.1.ffn_up_exps.weight") == "Q4_0 [5, 32, 64]");
    CHECK(shape("blk.1.ffn_down_exps.weight") == "Q4_0 [5, 64, 32]");
    CHECK(shape("blk.1.ffn_gate_inp.weight") == "F32 [5, 64]");
    CHECK(shape("blk.1.ffn_gate_inp_shexp.weight") == "F32 [64]");
    CHECK(shape("blk.1.ffn_up_shexp.weight") == "Q4_0 [64, 64]");
    CHECK(shape("blk.1.ffn_down_shexp.weight") == "Q4_0 [64, 64]");
}

TEST_CASE("gates and ups of experts may have different types, experts of one matrix may not") {
    const Miniature m = expert_miniature("qwen3moe");
    std::vector<WrittenTensor> tensors = make_tensors(m);
    for (WrittenTensor &t : tensors)
        if (t.name.ends_with("up_proj.weight")) t.dtype = KEEL_DTYPE_BF16;
    const TempFolder folder;
    write_miniature(folder / "m", m, tensors);
    const std::vector<std::string> stored = {"model.weights=stored"};
    const auto cpu = open_exact(folder / "m", "cpu", stored),
               reference = open_exact(folder / "m", "reference", stored);
    CHECK(cpu->weights().layer(0).expert_gate_up.size() == 2);
    Session a(*cpu), b(*reference);
    a.prefill(expert_cases().front().ids);
    b.prefill(expert_cases().front().ids);
    CHECK(largest_gap(a.logits(), b.logits()) < expert_bound);

    const std::string name = "model.layers.1.mlp.experts.6.down_proj.weight";
    tensor(tensors, name).dtype = KEEL_DTYPE_F16;
    write_miniature(folder / "m", m, tensors);
    CHECK_THAT(error_text([&] { open_exact(folder / "m", "cpu", stored); }),
               Contains("tensor '" + name +
                        "': expected F32, the type of this matrix in the first expert, found F16"));
}

TEST_CASE("a router with a NaN stops the run with the layer and the position") {
    const Miniature m = expert_miniature("olmoe");
    std::vector<WrittenTensor> tensors = make_tensors(m);
    tensor(tensors, "model.layers.1.mlp.gate.weight").values[70] = std::nanf("");
    const TempFolder folder;
    write_miniature(folder / "m", m, tensors);
    const auto pipeline = open_exact(folder / "m", "cpu");
    Session session(*pipeline);
    CHECK_THAT(error_text([&] { session.prefill(expert_cases().front().ids); }, ErrorKind::runtime),
               Contains("layer 1") && Contains("model.layers.1.mlp.gate.weight"));
}

TEST_CASE("a mixture of experts counts active parameters, and the bytes that a token reads") {
    const TempFolder folder;
    write_miniature(folder.path(), expert_miniature("mixtral"));
    const auto source = open_model_source(folder.path());
    const ModelConfig &c = source->config();
    int64_t all = 0;
    for (const TensorInfo &t : source->tensors()) all += t.elements();
    CHECK(c.parameter_count() == static_cast<uint64_t>(all));
    const uint64_t unused = 2 * 2 * 3 * 64 * 64; // layers, experts, matrices
    CHECK(c.active_parameter_count() == c.parameter_count() - unused);
    const auto pipeline = open_exact(folder.path(), "cpu");
    const ModelWeights &weights = pipeline->weights();
    const uint64_t embedding = 199 * 64 * 4, norms = 5 * 64 * 4;
    CHECK(weights.bytes(pipeline->device()) == source->total_bytes() - norms);
    CHECK(weights.bytes_per_token(pipeline->device()) ==
          source->total_bytes() - norms - embedding - unused * 4);
    LoadOptions options;
    options.dtype = KEEL_DTYPE_F32;
    CHECK(weight_bytes(*source, options).per_token == weights.bytes_per_token(pipeline->device()));
}

TEST_CASE("configs of experts that Keel cannot compute are refused with the key") {
    CHECK_THAT(config_error("qwen3moe", "num_experts_per_tok", 9),
               Contains("config.json") &&
                   Contains("num_experts_per_tok: expected an integer from 1 to 8, found 9"));
    CHECK_THAT(config_error("qwen3moe", "num_experts", 0),
               Contains("num_experts: expected an integer from 1 to 4096, found 0"));
    CHECK_THAT(config_error("qwen3moe", "decoder_sparse_step", 2),
               Contains("decoder_sparse_step: expected 1, found 2"));
    CHECK_THAT(config_error("qwen3moe", "mlp_only_layers", {0}),
               Contains("mlp_only_layers: expected an empty list"));
    CHECK_THAT(config_error("olmoe", "clip_qkv", 8.0), Contains("clip_qkv: expected null"));
    CHECK_THAT(config_error("mixtral", "n_group", 4), Contains("n_group: expected 1, found 4"));
    CHECK_THAT(config_error("qwen3moe", "scoring_func", "sigmoid"),
               Contains("scoring_func: expected softmax, found \"sigmoid\""));
    CHECK_THAT(config_error("qwen3moe", "routed_scaling_factor", 2.5),
               Contains("routed_scaling_factor: expected 1, found 2.5"));
    Miniature dense = read_miniature("qwen3");
    dense.config["num_experts"] = 8;
    CHECK_THAT(load_error(dense, make_tensors(dense)),
               Contains("num_experts: a mixture of experts is not supported for Qwen3ForCausalLM"));
    dense.config["architectures"] = {"GptOssForCausalLM"};
    CHECK_THAT(load_error(dense, make_tensors(dense)),
               Contains("'GptOssForCausalLM' is not supported, because it has MXFP4 experts"));
}

TEST_CASE("missing and misshapen tensors of experts are refused with file, tensor and shape") {
    const Miniature m = expert_miniature("qwen3moe");
    std::vector<WrittenTensor> tensors = make_tensors(m);
    const std::string name = "model.layers.1.mlp.experts.5.up_proj.weight";
    tensor(tensors, name).name = "model.layers.1.mlp.experts.8.up_proj.weight";
    CHECK_THAT(load_error(m, tensors),
               Contains("tensor '" + name + "' is missing; expected shape [32, 64]"));

    tensors = make_tensors(m);
    tensor(tensors, name).shape = {64, 32};
    CHECK_THAT(load_error(m, tensors),
               Contains("model.safetensors: tensor '" + name +
                        "': config.json requires shape [32, 64], found [64, 32] of F32"));

    tensors = stacked(m);
    WrittenTensor &stack = tensor(tensors, "model.layers.0.mlp.experts.gate_up_proj");
    stack.shape = {4, 128, 64}; // half of the experts, which are twice as large
    CHECK_THAT(load_error(m, tensors),
               Contains("tensor 'model.layers.0.mlp.experts.gate_up_proj': config.json requires "
                        "shape [8, 64, 64], found [4, 128, 64] of F32"));
}

TEST_CASE("GGUF files with another choice of experts are refused with the key") {
    const TempFolder folder;
    write_miniature(folder / "m", expert_miniature("qwen3moe"));
    write_gguf(folder / "m", folder / "m.gguf", KEEL_DTYPE_F32);
    const GgufFile original(folder / "m.gguf");
    // Writes the metadata with another value of one key, and opens the file.
    const auto with = [&](const std::string &key, uint32_t value) {
        const fs::path file = folder / "changed.gguf";
        GgufWriter out(file);
        for (const GgufEntry &entry : original.entries())
            if (entry.key != key) out.copy(original, entry);
        out.add(key, value);
        for (const GgufTensor &t : original.tensors()) out.add_tensor(t.name, t.type->id, t.shape);
        out.begin();
        for (const GgufTensor &t : original.tensors())
            out.write(original.bytes().subspan(t.offset, t.bytes));
        out.finish();
        return error_text([&] { (void)check_model_tensors(*open_model_source(file)); });
    };
    CHECK_THAT(with("qwen3moe.expert_gating_func", 2),
               Contains("changed.gguf") && Contains("'qwen3moe.expert_gating_func'") &&
                   Contains("expected 1, found 2"));
    CHECK_THAT(with("qwen3moe.expert_used_count", 9),
               Contains("metadata key 'qwen3moe.expert_used_count': expected an integer from 1 to "
                        "8, found 9"));
    CHECK_THAT(with("qwen3moe.expert_count", 9),
               Contains("tensor 'blk.0.ffn_gate_exps.weight': its metadata requires shape [9, 32, "
                        "64], found [8, 32, 64] of F32"));
}
