#include "apps/keel_process.hpp"
#include "support/skip.hpp"

using namespace keel::test;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

// Checks that every command that reads the model refuses it with one line and exit code 2, and
// needs little memory for this.
void check_refused(const std::string &model, const std::string &expected) {
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"run", model, "-p", "Once"},
          {"inspect", model},
          {"config", "check", model}}) {
        const ProcessResult r = run_keel(command);
        INFO(command.front());
        const std::string line = failure(r);
        INFO(line);
        CHECK(contains(line, expected));
        CHECK(line.size() < 1000);
        CHECK(r.peak_bytes < 300 * mib);
    }
}

std::string length_bytes(uint64_t length) {
    std::string out;
    for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 255);
    return out;
}

} // namespace

TEST_CASE("A model file cut short is refused") {
    const TinyCopy model;
    const std::string whole = model.read("model.safetensors");
    for (const size_t size :
         {size_t{0}, size_t{5}, size_t{100}, size_t{5000}, whole.size() / 2, whole.size() - 1}) {
        INFO(size << " bytes");
        model.write("model.safetensors", std::string_view(whole).substr(0, size));
        check_refused(model.path(), "model.safetensors");
    }
}

TEST_CASE("Absurd sizes in headers do not cause allocations") {
    const TinyCopy model;
    for (const uint64_t length : {uint64_t{1} << 60, ~uint64_t{0}, uint64_t{1} << 33}) {
        model.write("model.safetensors", length_bytes(length) + "{}");
        check_refused(model.path(), "model.safetensors");
    }
    for (
        const char *header :
        {R"({"a":{"dtype":"F32","shape":[1152921504606846976],)"
         R"("data_offsets":[0,4611686018427387904]}})",
         R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
         R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", R"([[[[[[)", R"({"a":)"}) {
        model.write("model.safetensors", length_bytes(std::string_view(header).size()) + header);
        check_refused(model.path(), "model.safetensors");
    }
}

TEST_CASE("A config.json that does not match the tensors is refused with name, expected and found "
          "shape") {
    const TinyCopy model;
    const std::string config = model.read("config.json");
    const auto with = [&](const char *key, const nlohmann::json &value,
                          const std::string &expected) {
        INFO(key << " = " << value);
        model.write("config.json", config);
        model.change_config(key, value);
        check_refused(model.path(), expected);
    };
    with("hidden_size", 512, "model.embed_tokens.weight");
    with("intermediate_size", 800, "mlp.gate_proj.weight");
    with("num_hidden_layers", 7, "model.layers.6");
    with("vocab_size", 5000, "[5000, 256]");
    with("num_key_value_heads", 4, "k_proj");
    with("tie_word_embeddings", false, "lm_head.weight");
    with("num_attention_heads", 0, "num_attention_heads");
    with("num_hidden_layers", 1152921504606846976LL, "num_hidden_layers");
    with("architectures", {"NoSuchModel"}, "NoSuchModel");
    model.write("config.json", "{ not json");
    check_refused(model.path(), "config.json");
}

TEST_CASE("A model that does not fit into memory is refused before anything is allocated") {
    const TinyCopy model;
    // A model of half a terabyte, in a sparse file.
    constexpr int64_t hidden = 256, wide = 1 << 29;
    auto header = nlohmann::json::object();
    uint64_t at = 0;
    const auto add = [&](const std::string &name, std::vector<int64_t> shape) {
        uint64_t bytes = 2;
        for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
        header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
        at += bytes;
    };
    model.change_config("num_hidden_layers", 1);
    model.change_config("intermediate_size", wide);
    add("model.embed_tokens.weight", {4096, hidden});
    const std::string layer = "model.layers.0.";
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "self_attn.q_proj.weight", {256, hidden});
    add(layer + "self_attn.k_proj.weight", {128, hidden});
    add(layer + "self_attn.v_proj.weight", {128, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, 256});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add(layer + "mlp.gate_proj.weight", {wide, hidden});
    add(layer + "mlp.up_proj.weight", {wide, hidden});
    add(layer + "mlp.down_proj.weight", {hidden, wide});
    add("model.norm.weight", {hidden});
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    model.write("model.safetensors", length_bytes(text.size()) + text);
    std::error_code error;
    std::filesystem::resize_file(model.path() + "/model.safetensors", 8 + text.size() + at, error);
    if (error) skip("this file system has no files with holes of " + std::to_string(at) + " bytes");
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"run", model.path(), "-p", "Once"},
          {"config", "check", model.path()}}) {
        const ProcessResult r = run_keel(command);
        const std::string line = failure(r);
        CHECK((contains(line, "intermediate_size") || contains(line, "available")));
        CHECK(r.peak_bytes < 300 * mib);
    }
}

TEST_CASE("For a folder without a model, the error says what is missing") {
    const TempFolder folder;
    CHECK(
        contains(failure(run_keel({"run", folder.path().string(), "-p", "Once"})), "config.json"));
    CHECK(contains(failure(run_keel({"inspect", (folder / "nothing").string()})),
                   "no such file or folder"));
    CHECK(contains(failure(run_keel({"tokenize", folder.path().string(), "text"})),
                   "tokenizer.json"));
    CHECK(contains(
        failure(run_keel({"run", folder.write("model.gguf", "GGUF").string(), "-p", "Once"})),
        "model.gguf"));
}

TEST_CASE("A broken tokenizer stops a run, and inspect gives the reason") {
    const TinyCopy model;
    model.write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{)");
    CHECK(contains(failure(run_keel({"run", model.path(), "-p", "Once"})), "tokenizer.json"));
    CHECK(contains(failure(run_keel({"config", "check", model.path()})), "tokenizer.json"));
    const auto json = parse_json(run_keel({"inspect", model.path(), "--json"}));
    CHECK(json.at("tokenizer").is_null());
    CHECK(contains(json.at("tokenizer_error"), "tokenizer.json"));
}

TEST_CASE("A damaged weight stops the run with layer and position, and --verify finds the weight") {
    const TinyCopy model;
    model.put_nan("model.layers.2.mlp.down_proj.weight", 5 * 768 + 17);
    const std::string line =
        failure(run_keel({"run", model.path(), "-p", "Once upon a time", "-n", "5"}), 1);
    CHECK(contains(line, "layer 2"));
    CHECK(contains(line, "position"));

    const ProcessResult found = run_keel({"inspect", model.path(), "--verify"});
    CHECK(found.code == 1);
    CHECK(contains(found.err, "model.layers.2.mlp.down_proj.weight"));
    CHECK(contains(found.err, "[5, 17]"));
    const ProcessResult as_json = run_keel({"inspect", model.path(), "--verify", "--json"});
    CHECK(as_json.code == 1);
    const auto json = nlohmann::json::parse(as_json.out);
    CHECK(json.at("verify").at("ok") == false);
    CHECK(json.at("verify").at("bad").at(0).at("first_index") == std::vector<int>{5, 17});
    CHECK(json.at("verify").at("bad").at(0).at("not_finite") == 1);
}

TEST_CASE("An error in a pipeline names file, line and column") {
    const TempFolder folder;
    const auto error_of = [&](const std::string &text) {
        const std::string file = folder.write("p.yaml", text).string();
        const std::string line = failure(run_keel({"config", "check", file}));
        INFO(line);
        CHECK(failure(run_keel({"run", file, "-p", "Once"})) == line);
        return line.substr(contains(line, "p.yaml") ? line.find("p.yaml") : 0);
    };
    const std::string model = "model: " + tiny + "\n";
    const std::string unknown = error_of(
        model + "backend: cpu\npolicy:\n  plugin: sliding_window\n  params:\n    widnow: 3\n");
    CHECK(unknown.starts_with("p.yaml:6:"));
    CHECK(contains(unknown,
                   "unknown key 'widnow' for policy sliding_window; did you mean 'window'?"));
    CHECK(error_of(model + "backend: cpu\nkv: {dtype: f17}\n").starts_with("p.yaml:3:13: "));
    CHECK(error_of(model + "backend: gpu9000\n").starts_with("p.yaml:2:10: "));
    CHECK(error_of(model + "backend: {plugin: cpu, params: {threads: 1000}}\n")
              .starts_with("p.yaml:2:"));
    CHECK(
        error_of(model + "backend: cpu\nsampling:\n  temprature: 1\n").starts_with("p.yaml:4:3: "));
    CHECK(error_of(model + "backend: cpu\npolicy: cpu\n").starts_with("p.yaml:3:9: "));
    CHECK(error_of(model + "backend: cpu\nmodel: again\n").starts_with("p.yaml:3:"));
    CHECK(error_of(model + "backend: [cpu\n").starts_with("p.yaml:"));
    CHECK(error_of("backend: cpu\n").starts_with("p.yaml"));
    // The check includes the parameters that plugins need and the shape of the model.
    CHECK(contains(error_of(model + "backend: cpu\npolicy: sliding_window\n"), "policy.budget"));
    CHECK(contains(error_of("model: {path: " + tiny + ", context: 4096}\nbackend: cpu\n"),
                   "the model was made for 2048"));
    CHECK(error_of(model + "backend: cpu\nmodel2: x\n").starts_with("p.yaml:3:1: "));
}
