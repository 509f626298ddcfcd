// Tests of GGUF files with K-quants, mixed as llama-quantize mixes them. They run with the stored
// dtypes.

#include "conformance/k_quantizer.hpp"
#include "convert/gguf_export.hpp"
#include "format/gguf_writer.hpp"
#include "run/explain.hpp"
#include "run/generate.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/wrapping_backend.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const fs::path tiny = KEEL_SOURCE_DIR "/models/tiny";
const std::vector<int32_t> ids{4094, 72, 436, 111,  1034, 44,  315, 311,
                               32,   49, 265, 3601, 17,   900, 2048};

uint32_t ggml_type_of(keel_dtype type) {
    switch (type) {
    case KEEL_DTYPE_Q4_K: return ggml::q4_k;
    case KEEL_DTYPE_Q5_K: return ggml::q5_k;
    case KEEL_DTYPE_Q6_K: return ggml::q6_k;
    default: return ggml::f32;
    }
}

// Writes a copy of an f32 GGUF file whose matrices have the type that `type_of` returns. Also
// writes a file with the values to which these matrices decode.
void write_pair(const fs::path &from, const fs::path &packed, const fs::path &decoded,
                const std::function<keel_dtype(const std::string &)> &type_of) {
    const GgufFile source(from);
    GgufWriter out(packed), plain(decoded);
    for (GgufWriter *writer : {&out, &plain})
        for (const GgufEntry &entry : source.entries()) writer->copy(source, entry);
    const auto type = [&](const GgufTensor &t) {
        return t.shape.size() == 2 ? type_of(t.name) : keel_dtype{KEEL_DTYPE_F32};
    };
    for (const GgufTensor &t : source.tensors()) {
        out.add_tensor(t.name, ggml_type_of(type(t)), t.shape);
        plain.add_tensor(t.name, ggml::f32, t.shape);
    }
    out.begin();
    plain.begin();
    for (const GgufTensor &t : source.tensors()) {
        const auto bytes = source.bytes().subspan(t.offset, t.bytes);
        if (type(t) == KEEL_DTYPE_F32) {
            out.write(bytes);
            plain.write(bytes);
            continue;
        }
        std::vector<float> values(t.bytes / sizeof(float));
        std::memcpy(values.data(), bytes.data(), t.bytes);
        std::vector<uint8_t> blocks(keel_dtype_row_bytes(type(t), values.size()));
        KQuantizer::quantize(type(t), values.data(), values.size(), blocks.data());
        convert_to_f32(type(t), blocks.data(), values.data(), values.size());
        out.write(std::as_bytes(std::span(blocks)));
        plain.write(std::as_bytes(std::span(values)));
    }
    out.finish();
    plain.finish();
}

// In Q4_K_M files, v and down have more bits in some layers. Here gate and up also differ.
keel_dtype mixed(const std::string &name) {
    if (name.find("token_embd") != std::string::npos) return KEEL_DTYPE_Q6_K;
    const bool some =
        name.find("blk.0.") != std::string::npos || name.find("blk.3.") != std::string::npos;
    if (some &&
        (name.find("attn_v") != std::string::npos || name.find("ffn_down") != std::string::npos))
        return KEEL_DTYPE_Q6_K;
    if (name.find("blk.4.ffn_up") != std::string::npos || name.find("blk.5") != std::string::npos)
        return KEEL_DTYPE_Q5_K;
    return KEEL_DTYPE_Q4_K;
}

struct Files {
    TempFolder folder;
    fs::path packed, decoded;
    explicit Files(const std::function<keel_dtype(const std::string &)> &type_of)
        : packed(folder / "packed.gguf"), decoded(folder / "decoded.gguf") {
        ExportOptions options;
        options.type = KEEL_DTYPE_F32;
        export_gguf(*open_model_source(tiny), folder / "f32.gguf", options);
        write_pair(folder / "f32.gguf", packed, decoded, type_of);
    }
};

std::unique_ptr<Pipeline> pipeline_of(const fs::path &model, const std::vector<std::string> &more) {
    std::vector<std::string> sets{"model.path=" + model.string(), "backend.plugin=cpu",
                                  "strict=true", "sampling.temperature=0", "kv.dtype=f32"};
    sets.insert(sets.end(), more.begin(), more.end());
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets));
}

// Returns the logits of all rows of the prompt's steps, and of one more step.
std::vector<float> logits(Pipeline &pipeline) {
    Session session(pipeline);
    session.prefill(ids);
    const auto last = session.logits();
    return {last.begin(), last.end()};
}

double distance(const std::vector<float> &a, const std::vector<float> &b) {
    double error = 0, size = 0;
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
        error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(error / size);
}

std::string text(Pipeline &pipeline) {
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 24;
    const std::string prompt = "Once upon a time there was a king's daughter, 12 of them";
    return generate(session, pipeline.tokenizer()->encode(prompt), options).text;
}

const std::string exact = "backend.params.compute=exact", fast = "backend.params.compute=fast";

} // namespace

TEST_CASE("a file of mixed K-quants runs as it is stored, with the results of its values in f32") {
    const Files files(mixed);
    const auto f32 = pipeline_of(files.decoded, {exact}),
               native = pipeline_of(files.packed, {exact});
    CHECK(native->weights().dtype_name() == "q4_k, q5_k, q6_k");
    CHECK(native->source()
              .conversions(KEEL_DTYPE_NONE, native->device().info().weight_dtypes)
              .empty());
    // The bytes that are read for each token are the bytes of the matrices in the file. No matrix
    // is stored in a wider type.
    uint64_t stored = 0;
    for (const TensorInfo &tensor : native->source().tensors())
        if (tensor.shape.size() == 2) stored += tensor.bytes;
    CHECK(native->weights().bytes_per_token(native->device()) == stored);
    const auto expected = logits(*f32);
    CHECK(distance(logits(*native), expected) < 1e-5);
    CHECK(text(*native) == text(*f32));
    const auto rounded = pipeline_of(files.packed, {fast});
    const double off = distance(logits(*rounded), expected);
    INFO("fast is off by " << off);
    CHECK(off < 0.02);
    CHECK(off > 0);
}

TEST_CASE("matrices whose parts have different types are multiplied part by part") {
    const Files files(mixed);
    const auto native = pipeline_of(files.packed, {});
    std::map<std::string, int> ops;
    for (const PlannedOp *op : native->graph().ops(StepForm::decode))
        ++ops[op->label() + ": " + std::string(op->kernel()).substr(0, 11)];
    CHECK(ops["decode layer 0: qkv: matmul q4_k"] == 1);
    CHECK(ops["decode layer 0: qkv, part 2: matmul q6_k"] == 1);
    CHECK(ops["decode layer 1: qkv: matmul q4_k"] == 1);
    CHECK(ops["decode layer 1: qkv, part 2: matmul q4_k"] == 0);
    CHECK(ops["decode layer 4: gate up: matmul q4_k"] == 1);
    CHECK(ops["decode layer 4: gate up, part 2: matmul q5_k"] == 1);
    CHECK(native->weights().layer(0).qkv.size() == 2);
    CHECK(native->weights().layer(4).gate_up.size() == 2);
}

TEST_CASE("each K type runs alone, and on the reference") {
    for (const keel_dtype type : {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
        INFO(keel_dtype_name(type));
        const Files files([&](const std::string &) { return type; });
        const auto native = pipeline_of(files.packed, {exact});
        CHECK(native->weights().dtype_name() == keel_dtype_name(type));
        const auto expected = logits(*pipeline_of(files.decoded, {exact}));
        CHECK(distance(logits(*native), expected) < 1e-5);
        CHECK(distance(logits(*pipeline_of(files.packed, {fast})), expected) < 0.02);
        // With model.weights, they are converted like all other weights.
        CHECK(pipeline_of(files.packed, {"model.weights=q8_0"})->weights().dtype_name() == "q8_0");
    }
}

TEST_CASE("for a backend without K types they are converted to q8_0, which is reported") {
    const Files files(mixed);
    WrappingBackend plain;
    plain.hide("ctx_info"); // so the backend does not report further dtypes
    const std::vector<std::string> sets{"model.path=" + files.packed.string(), "backend.plugin=cpu",
                                        "kv.dtype=f32"};
    PipelineOptions options;
    options.device = [&](const std::string &) { return plain.open(); };
    Pipeline pipeline(pipeline::config_from_overrides(sets), options);
    CHECK(pipeline.weights().dtype_name() == "q8_0");
    CHECK_THAT(explain_pipeline(pipeline), Contains("Q4_K tensors are converted to q8_0: ") &&
                                               Contains("Q6_K tensors are converted to q8_0: "));
    const auto expected = logits(*pipeline_of(files.decoded, {exact}));
    CHECK(distance(logits(pipeline), expected) < 0.05); // the weights are rounded once more
}

TEST_CASE("K types are refused for values that Keel stores") {
    WrappingBackend backend; // wraps the reference backend
    const std::shared_ptr<Device> device = backend.open();
    const Tensor x = Tensor::allocate(*device, KEEL_DTYPE_F32, {1, 256}),
                 out = Tensor::allocate(*device, KEEL_DTYPE_Q4_K, {1, 256});
    keel_move_args a = {KEEL_HEADER(keel_move_args)};
    a.x = x.c();
    a.out = out.c();
    REQUIRE(device->table().cast(device->ctx(), &a) == KEEL_E_UNSUPPORTED);
    CHECK_THAT(take_message(), Contains("out is q4_k, a type that only weights can have"));
    for (const char *key : {"kv.dtype=q4_k", "model.weights=q6_k"})
        CHECK_THAT(
            error_text([&] {
                pipeline::config_from_overrides(std::vector<std::string>{"model.path=x", key});
            }),
            Contains("expected one of") && Contains(std::string(key).substr(std::strlen(key) - 4)));
}
