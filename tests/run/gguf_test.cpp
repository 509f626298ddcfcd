// Checks that GGUF files that Keel writes give the same results as the models they were made from.

#include "convert/gguf_export.hpp"
#include "format/gguf.hpp"
#include "golden.hpp"
#include "run/generate.hpp"
#include "support/arch_miniature.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
namespace fs = std::filesystem;

namespace {

const fs::path tiny = KEEL_SOURCE_DIR "/models/tiny";
const fs::path golden = KEEL_SOURCE_DIR "/tests/golden";

ExportReport write(const fs::path &model, const fs::path &to, keel_dtype type,
                   bool tokenizer = true) {
    ExportOptions options;
    options.type = type;
    options.tokenizer = tokenizer;
    return export_gguf(*open_model_source(model), to, options);
}

std::vector<float> logits(const fs::path &model, const std::string &weights,
                          std::span<const int32_t> tokens) {
    const std::vector<std::string> sets{"model.path=" + model.string(), "model.weights=" + weights,
                                        "backend.plugin=cpu", "strict=true"};
    PipelineOptions options;
    options.need_tokenizer = false;
    Pipeline pipeline(pipeline::config_from_overrides(sets), options);
    Session session(pipeline);
    session.prefill(tokens);
    const auto last = session.logits();
    return {last.begin(), last.end()};
}

std::string greedy(const fs::path &model) {
    const std::vector<std::string> sets{"model.path=" + model.string(), "backend.plugin=cpu",
                                        "sampling.temperature=0"};
    Pipeline pipeline(pipeline::config_from_overrides(sets));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 40;
    const std::string prompt = "Once upon a time there was a king's daughter, 12 of them";
    return generate(session, pipeline.tokenizer()->encode(prompt), options).text;
}

std::string bytes(const fs::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

const std::vector<int32_t> ids{4094, 72, 436, 111,  1034, 44,  315, 311,
                               32,   49, 265, 3601, 17,   900, 2048};

} // namespace

TEST_CASE("a folder and its GGUF file give bitwise the same logits, for every type") {
    const TempFolder folder;
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_BF16, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        const std::string name = keel_dtype_name(type);
        INFO(name);
        const fs::path file = folder / (name + ".gguf");
        const ExportReport report = write(tiny, file, type);
        CHECK(report.file_bytes == fs::file_size(file));
        CHECK(report.tensors.size() == open_model_source(tiny)->tensors().size());
        CHECK(logits(file, "stored", ids) == logits(tiny, name, ids));
        const double loss = report.relative();
        if (type == KEEL_DTYPE_F32 || type == KEEL_DTYPE_BF16) CHECK(loss == 0);
        if (type == KEEL_DTYPE_F16) CHECK(loss < 1e-4);
        if (type == KEEL_DTYPE_Q8_0) CHECK((loss > 0.001 && loss < 0.01));
        if (type == KEEL_DTYPE_Q4_0) CHECK((loss > 0.05 && loss < 0.12));
    }
    CHECK(greedy(folder / "bf16.gguf") == greedy(tiny));
}

namespace {

// Returns the names of the miniatures that GGUF can represent. Checks that each gives the same
// logits from a GGUF file as from its folder.
std::set<std::string> written_ones(const std::vector<Miniature> &models) {
    std::set<std::string> written;
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 50; ++i) prompt.push_back(i * 7 % 60);
    for (const Miniature &model : models) {
        INFO(model.name);
        const TempFolder folder;
        write_miniature(folder / "m", model);
        try {
            write(folder / "m", folder / "m.gguf", KEEL_DTYPE_F32, false);
        } catch (const Error &e) {
            CHECK_THAT(e.what(), Contains("GGUF cannot represent"));
            continue;
        }
        written.insert(model.name);
        CHECK(logits(folder / "m.gguf", "f32", prompt) == logits(folder / "m", "f32", prompt));
    }
    return written;
}

} // namespace

TEST_CASE("each architecture comes back from GGUF unchanged, and models that GGUF cannot hold are "
          "refused") {
    std::vector<Miniature> models = read_miniatures();
    CHECK(written_ones(models) ==
          std::set<std::string>{"gemma", "llama_biases", "mistral", "qwen2"});
    // The other miniatures have sizes that no real model of their architecture has and that no GGUF
    // key can describe. Here they get sizes of real models.
    for (Miniature &model : models) {
        if (model.name == "qwen3") model.config["use_sliding_window"] = false;
        if (!model.name.starts_with("gemma")) continue;
        model.config["query_pre_attn_scalar"] = model.config.at("head_dim");
        model.config.erase("layer_types");
        model.config.erase("sliding_window_pattern");
        model.config["rope_local_base_freq"] = 10000.0;
    }
    CHECK(written_ones(models).size() == models.size());
}

TEST_CASE(
    "each family comes back from GGUF unchanged, and models that GGUF cannot hold are refused") {
    // llama_yarn has `truncate: false`, ministral has windows in some layers, and GGUF has no name
    // for glm.
    std::set<std::string> names;
    const std::vector<Miniature> models = read_miniatures("family_logits.json");
    for (const Miniature &model : models) names.insert(model.name);
    for (const char *refused : {"llama_yarn", "ministral", "glm"}) CHECK(names.erase(refused) == 1);
    CHECK(written_ones(models) == names);
}

TEST_CASE("YaRN comes back from GGUF if its keys mean the same to every reader") {
    Miniature model = read_miniature("llama_yarn");
    model.config["rope_scaling"] = {{"rope_type", "yarn"},
                                    {"factor", 8.0},
                                    {"original_max_position_embeddings", 64},
                                    {"attention_factor", 1.0}};
    CHECK(written_ones({model}).size() == 1);
    const TempFolder folder;
    write_miniature(folder / "m", model);
    write(folder / "m", folder / "m.gguf", KEEL_DTYPE_F32, false);
    const GgufFile file(folder / "m.gguf");
    CHECK(file.number("llama.rope.scaling.attn_factor", 0, 9) ==
          static_cast<double>(static_cast<float>(1 / (1 + 0.1 * std::log(8.0)))));
    CHECK_FALSE(file.has("llama.rope.scaling.yarn_log_multiplier"));
    model.config["rope_scaling"]["attention_factor"] = 1.5;
    CHECK(written_ones({model}).size() == 1);
    model.config["rope_scaling"]["beta_fast"] = 16;
    CHECK(written_ones({model}).empty());
    Miniature olmo = read_miniature("olmo3");
    olmo.config["rope_scaling"]["attention_factor"] = 1.5;
    CHECK(written_ones({olmo}).empty());
}

TEST_CASE("RoPE factors of another scaling than Llama's still give the logits of transformers") {
    const TempFolder folder;
    for (const GoldenCase &c : read_golden("mini_logits.json")) {
        INFO(c.name);
        const fs::path file = folder / (c.name + ".gguf");
        write(golden / c.name, file, KEEL_DTYPE_F32, false);
        const auto found = logits(file, "f32", c.ids);
        const auto expected = logits(golden / c.name, "f32", c.ids);
        double worst = 0;
        for (size_t i = 0; i < found.size(); ++i)
            worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
        CHECK(worst <= (c.name == "mini_llama3" ? 1e-4 : 0));
    }
}

TEST_CASE("Llama 3's RoPE scaling is recognized by its factors, so nothing is rounded") {
    const TempFolder folder;
    fs::copy(tiny, folder / "m");
    std::string config = bytes(tiny / "config.json");
    const std::string none = "\"rope_scaling\": null";
    config.replace(
        config.find(none), none.size(),
        R"("rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
    folder.write("m/config.json", config);
    write(folder / "m", folder / "m.gguf", KEEL_DTYPE_BF16);
    const auto source = open_model_source(folder / "m.gguf");
    CHECK(source->config().rope_scaling.kind == RopeScaling::Kind::llama3);
    CHECK(source->config().rope_scaling.factor == 32);
    CHECK(logits(folder / "m.gguf", "stored", ids) == logits(folder / "m", "stored", ids));
}

TEST_CASE("a GGUF file is converted with its metadata, and to the same type with its bytes") {
    const TempFolder folder;
    write(tiny, folder / "q8.gguf", KEEL_DTYPE_Q8_0);
    const ExportReport same = write(folder / "q8.gguf", folder / "again.gguf", KEEL_DTYPE_Q8_0);
    CHECK(same.relative() == 0);
    const GgufFile a(folder / "q8.gguf"), b(folder / "again.gguf");
    for (const GgufTensor &tensor : a.tensors()) {
        const auto other = std::find_if(b.tensors().begin(), b.tensors().end(),
                                        [&](const GgufTensor &t) { return t.name == tensor.name; });
        REQUIRE(other != b.tensors().end());
        const auto from = [](const GgufFile &file, const GgufTensor &t) {
            return std::string_view(reinterpret_cast<const char *>(file.bytes().data()) + t.offset,
                                    t.bytes);
        };
        REQUIRE(from(a, tensor) == from(b, *other));
    }
    CHECK(a.entries().size() == b.entries().size());
    write(folder / "q8.gguf", folder / "f32.gguf", KEEL_DTYPE_F32);
    CHECK(GgufFile(folder / "f32.gguf").integer("general.file_type") == 0);
    CHECK(logits(folder / "f32.gguf", "q8_0", ids) == logits(folder / "q8.gguf", "stored", ids));
    // Dtypes in a file of another program, including block types.
    const ExportReport report =
        write(golden / "mini_gguf.gguf", folder / "mini.gguf", KEEL_DTYPE_F32);
    CHECK(report.relative() == 0);
    const std::vector<int32_t> few{1, 2, 3, 4, 5, 6, 7, 8};
    CHECK(logits(folder / "mini.gguf", "f32", few) ==
          logits(golden / "mini_gguf.gguf", "f32", few));
}

TEST_CASE("writing refuses an existing file, and leaves nothing behind") {
    const TempFolder folder;
    const fs::path file = folder / "m.gguf";
    write(tiny, file, KEEL_DTYPE_Q4_0);
    const std::string before = bytes(file);
    const auto refusal = [](const auto &action) { return error_text(action, ErrorKind::usage); };
    CHECK_THAT(
        refusal([&] { write(tiny, file, KEEL_DTYPE_F16); }),
        EndsWith("m.gguf: the file exists; give another name, or use --force to replace it"));
    CHECK_THAT(refusal([&] { write(file, file, KEEL_DTYPE_F16); }),
               Contains("this file is the model to convert"));
    CHECK_THAT(refusal([&] { write(tiny, folder.path(), KEEL_DTYPE_F16); }),
               Contains("expected the name of a file to write, found a folder"));
    CHECK_THAT(refusal([&] { write(tiny, folder / "no/m.gguf", KEEL_DTYPE_F16); }),
               Contains("does not exist; create it first"));
    CHECK_THAT(refusal([&] { write(tiny, folder / "i.gguf", KEEL_DTYPE_I32); }),
               Contains("weights cannot be written as i32"));
    CHECK_THAT(error_text([&] { write(golden / "mini_plain", folder / "p.gguf", KEEL_DTYPE_F32); }),
               Contains("tokenizer.json: the file is missing"));
    ExportOptions options;
    options.overwrite = true;
    options.progress = [](uint64_t done, uint64_t total) {
        if (done > total / 2) throw_error(ErrorKind::runtime, "stopped");
    };
    CHECK_THROWS_AS(export_gguf(*open_model_source(tiny), file, options), Error);
    CHECK(bytes(file) == before);
    CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
    options.progress = {};
    options.type = KEEL_DTYPE_Q8_0;
    export_gguf(*open_model_source(tiny), file, options);
    CHECK(bytes(file) != before);
}

TEST_CASE("a tokenizer that GGUF cannot describe is refused with its kind") {
    const TempFolder folder;
    fs::copy(tiny, folder / "m");
    const std::string tokenizer = bytes(tiny / "tokenizer.json");
    const auto with = [&](const std::string &from, const std::string &to) {
        std::string text = tokenizer;
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        folder.write("m/tokenizer.json", text.replace(at, from.size(), to));
        return error_text([&] { write(folder / "m", folder / "m.gguf", KEEL_DTYPE_Q8_0); });
    };
    CHECK_THAT(with("(?i:'s|", "(?i:'z|"), Contains("tokenizer.json: pre_tokenizer: expected one "
                                                    "of the patterns for which GGUF has a name"));
    CHECK_THAT(with("\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}"),
               Contains("normalizer: GGUF has no key for this setting"));
    // A GGUF file of another architecture than Qwen is read without this normalizer.
    CHECK_THAT(with("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"),
               Contains("normalizer: expected no normalizer, because programs that read GGUF "
                        "compose characters (NFC) only if the pre-tokenizer is Qwen's"));
    CHECK_THAT(with("\"type\": \"BPE\"", "\"type\": \"Unigram\""),
               Contains("expected the type BPE, found 'Unigram'"));
    CHECK_THAT(with("\"id\": 4094", "\"id\": 9999"),
               Contains("added_tokens: expected ids from 0 to 4095, found 9999"));
}

TEST_CASE("a folder and its GGUF file name the same chat template") {
    const TempFolder folder;
    fs::copy(tiny, folder / "m");
    const auto template_of = [&] {
        fs::remove(folder / "m.gguf");
        write(folder / "m", folder / "m.gguf", KEEL_DTYPE_Q4_0);
        const std::string jinja = load_chat_template(folder / "m.gguf").jinja;
        CHECK(jinja == load_chat_template(folder / "m").jinja);
        return jinja;
    };
    CHECK(template_of().empty());
    folder.write("m/tokenizer_config.json", R"({"chat_template": "of the config"})");
    CHECK(template_of() == "of the config");
    folder.write("m/chat_template.jinja", "of its own file");
    CHECK(template_of() == "of its own file");
    folder.write("m/tokenizer_config.json",
                 R"({"chat_template": [{"name": "tool_use", "template": "x"}]})");
    CHECK(template_of() == "of its own file");
}

TEST_CASE("a vocabulary that only a tokenizer.model has is written with its scores") {
    const TempFolder folder;
    fs::copy(tiny, folder / "m");
    fs::remove(folder / "m/tokenizer.json");
    fs::copy(KEEL_SOURCE_DIR "/tests/text/golden/spm/tokenizer.model",
             folder / "m/tokenizer.model");
    folder.write("m/tokenizer_config.json",
                 R"({"bos_token": "<s>", "eos_token": "<|end|>",
                     "added_tokens_decoder": {"1500": {"content": "<|end|>", "special": true}}})");
    folder.write("m/added_tokens.json", R"({"word": 1501})");
    write(folder / "m", folder / "m.gguf", KEEL_DTYPE_Q4_0);
    const auto from_folder = load_tokenizer(folder / "m"),
               from_file = load_tokenizer(folder / "m.gguf");
    for (const std::string text :
         {"Once upon a time", " two  spaces\n\tand a tab", "caf\u00E9 \u4E2D\u6587 \u2603", "12345",
          "a<|end|>b</s> c", "a word within", ""}) {
        INFO(text);
        CHECK(from_file->encode(text) == from_folder->encode(text));
        CHECK(from_file->encode(text, false) == from_folder->encode(text, false));
    }
    CHECK(from_file->bos_id() == 1);
    CHECK(from_file->eos_id() == 1500);
    CHECK(from_file->kind(1501) == TokenKind::added);
    folder.write("m/added_tokens.json", R"({"word": 4096})");
    CHECK_THAT(
        error_text([&] { write(folder / "m", folder / "n.gguf", KEEL_DTYPE_Q4_0); }),
        Contains("tokenizer.model: an added token: expected ids from 0 to 4095, found 4096"));
    fs::remove(folder / "m/added_tokens.json");
    folder.write("m/tokenizer_config.json", R"({"bos_token": "</s>"})"); // a text begins with <s>
    CHECK_THAT(error_text([&] { write(folder / "m", folder / "n.gguf", KEEL_DTYPE_Q4_0); }),
               Contains("tokenizer.model: bos_token, eos_token: expected the tokens that "
                        "tokenizer.model adds to a text, found other tokens"));
    fs::remove(folder / "m/tokenizer.model");
    CHECK_THAT(error_text([&] { write(folder / "m", folder / "n.gguf", KEEL_DTYPE_Q4_0); }),
               Contains("tokenizer.json: the file is missing"));
}
