#include "config/config_writer.hpp"
#include "config/schema.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

using namespace keel;
using namespace keel::pipeline;
using Catch::Matchers::Contains;

namespace {

PipelineConfig parse_text(std::string_view text) { return parse_config(text, "f.yaml", "/folder"); }

const std::vector<std::string> examples = {
    "model: m\nbackend: cpu\n",
    "model: {path: \"with space: #\", weights: bf16, context: 1}\n"
    "backend: {plugin: /x/y.so, device: 'a: b', params: {a: 1, b: -0.5, c: true, d: 'null', e: , "
    "f: [x, 'y, "
    "z', \"\"], "
    "g: \"\", h: \"\\t\\\"\\\\\\x7f\\x85\\0é\"}}\n"
    "kv: {dtype: f32, key_dtype: q8_0, value_dtype: q4_0, max_mib: 0.1}\n"
    "policy: {plugin: p, params: {w: 1}, allocator: {plugin: q, params: {v: 2}}, budget: {ratio: "
    "0.3333333333333333, slack: 9},"
    " protect: {prefix: 1, recent: 2, spans: [[3, 9], [20, 21]]}, positions: auto, trigger: {on: "
    "[every_n, "
    "insert, "
    "pressure], every_n: 3, pressure: {available_mib: 12.5, critical_mib: 3, stalled_percent: "
    "none, steps: "
    "[0.9, 0.1], "
    "cooldown: 5}}, log: l, log_positions: true, seed: 4}\n"
    "sync: {strategy: batched, ops: 3}\nstrict: true\nfallback: r\n"
    "sampling: {temperature: 1e-3, top_k: 2, top_p: 0.1, min_p: 0.7, repetition_penalty: 1.1, "
    "repetition_window: 6, seed: 7}\n"
    "generation: {pin: [a, 'b c'], prompt: \"- a\\n...\\n# b\", max_tokens: 8, stop: [\"~\", "
    "'---', "
    "\"\\n\"]}\n",
    "model: m\nbackend: cpu\nsync: batched\npolicy: {plugin: none, trigger: {on: []}, budget: "
    "{mib: 2.5}}\n",
    "model: m\nbackend: cpu\npolicy: {plugin: x, budget: {tokens: 9}, trigger: "
    "insert}\ngeneration: {prompt: "
    "''}\n",
};

} // namespace

TEST_CASE("the resolved form reads back as the same config") {
    for (const std::string &text : examples) {
        INFO(text);
        const PipelineConfig config = parse_text(text);
        for (const bool origins : {false, true}) {
            const std::string written = to_yaml(config, origins);
            INFO(written);
            const PipelineConfig again = parse_config(written, "again.yaml", "/elsewhere");
            CHECK(again == config);
            CHECK(to_yaml(again) == to_yaml(config));
        }
    }
    CHECK_FALSE(parse_text(examples[0]) == parse_text(examples[1]));
}

TEST_CASE("every key is part of a comparison of configs") {
    const std::vector<std::string> base = {"model=m", "backend=x", "policy=p",
                                           "policy.budget.tokens=500",
                                           "policy.trigger.on=[insert]"};
    const PipelineConfig plain = config_from_overrides(base);
    for (const auto &key : schema().keys) {
        if (key->path.starts_with("hybrid.")) continue;
        std::vector<std::string> changed = base;
        if (key->path == "sync.ops") changed.emplace_back("sync=batched");
        if (key->path == "policy.log_positions") changed.emplace_back("policy.log=e.jsonl");
        if (key->path == "policy.trigger.every_n")
            changed.emplace_back("policy.trigger.on=[every_n]");
        if (key->path == "policy.trigger.every_n" || key->path == "policy.trigger.on")
            changed.emplace_back("policy.trigger.every_n=3");
        changed.push_back(std::string(key->path) + "=" + std::string(key->example));
        INFO(key->path);
        const PipelineConfig config = config_from_overrides(changed);
        CHECK_FALSE(config == plain);
        CHECK(parse_config(to_yaml(config), "f", "/") == config);
    }
}

TEST_CASE("the resolved form gives the origin of each value") {
    const std::vector<std::string> overrides = {"sampling.seed=5"};
    const PipelineConfig config =
        parse_config("model: m\nbackend:\n  plugin: cpu\n  params: {threads: 2}\n", "f.yaml",
                     "/folder", overrides);
    const std::string text = to_yaml(config, true);
    CHECK_THAT(text,
               Contains("model:\n  path: /folder/m  # f.yaml:1:8\n  weights: stored  # default\n"));
    CHECK_THAT(text, Contains("  params:\n    threads: 2  # f.yaml:4:21\n"));
    CHECK_THAT(text, Contains("  seed: 5  # --set sampling.seed\n"));
    CHECK_THAT(text, Contains("    # tokens: not set\n"));
    for (const auto &key : schema().keys) {
        INFO(key->path);
        if (!key->path.starts_with("hybrid."))
            CHECK_THAT(text, Contains(std::string(last_part(key->path)) + ":"));
    }
    CHECK(to_yaml(config).find('#') == std::string::npos);
}

TEST_CASE("the resolved keys can be read for tables") {
    const auto keys =
        resolved_keys(parse_text("model: m\nbackend: {plugin: cpu, params: {threads: 2}}\n"));
    const auto find = [&](std::string_view path) {
        for (const ResolvedKey &key : keys) {
            if (key.path == path) return key;
        }
        return ResolvedKey{};
    };
    CHECK(find("backend.params.threads").value == "2");
    CHECK(find("kv.dtype").value == "f16");
    CHECK(find("kv.dtype").where.file.empty());
    CHECK(find("policy.log").path == "policy.log");
    CHECK(find("policy.log").value.empty());
}

TEST_CASE("scalars are quoted if they would otherwise have another meaning") {
    CHECK(yaml_scalar("f16") == "f16");
    CHECK(yaml_scalar("../a/b-c_d.so") == "../a/b-c_d.so");
    CHECK(yaml_scalar("-5") == "-5");
    CHECK(yaml_scalar("") == "\"\"");
    CHECK(yaml_scalar("null") == "\"null\"");
    CHECK(yaml_scalar("~") == "\"~\"");
    CHECK(yaml_scalar("-") == "\"-\"");
    CHECK(yaml_scalar("---") == "\"---\"");
    CHECK(yaml_scalar("...") == "\"...\"");
    CHECK(yaml_scalar("a b") == "\"a b\"");
    CHECK(yaml_scalar("a\"\\\n\t\r") == "\"a\\\"\\\\\\n\\t\\x0d\"");
    CHECK(yaml_scalar("\xC2\x9B") == "\"\\x9b\"");
    CHECK(yaml_scalar("é") == "\"é\"");
}

TEST_CASE("a new pipeline has the given values and explains every key") {
    const std::vector<InitValue> values = {{"model.path", "../my models/m", "2.2 GiB as stored."},
                                           {"backend.plugin", "cpu"},
                                           {"backend.params", "{threads: 2}"},
                                           {"policy.plugin", "sliding_window"},
                                           {"policy.budget.tokens", "512"},
                                           {"generation.prompt", "Once: \"upon\""}};
    const std::string text = init_yaml(values);
    const PipelineConfig config = parse_config(text, "new.yaml", "/folder");
    CHECK(*config.model.path == "/my models/m");
    CHECK(*config.policy.plugin == "sliding_window");
    CHECK(*config.policy.budget.tokens == 512);
    CHECK(config.backend.params.at(0).text == "2");
    CHECK(*config.generation.prompt == "Once: \"upon\"");
    CHECK_THAT(text, Contains("  # 2.2 GiB as stored.\n  path: \"../my models/m\"\n"));
    CHECK_THAT(text, Contains("\n  # dtype: f16\n"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 110);
    for (const auto &key : schema().keys) {
        INFO(key->path);
        CHECK_THAT(text, Contains(std::string(last_part(key->path)) + ": "));
        CHECK_THAT(text, Contains(std::string(key->doc.substr(0, key->doc.find(' ')))));
    }
}

TEST_CASE("a new pipeline can be read after every line was uncommented") {
    const std::vector<InitValue> values = {{"model.path", "m"}, {"backend.plugin", "cpu"}};
    std::istringstream lines(init_yaml(values));
    std::string text;
    bool in_hybrid = false; // `hybrid` would exclude `backend`
    for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line[0] != ' ' && line[0] != '#') in_hybrid = line == "hybrid:";
        const size_t hash = line.find("# ");
        const bool is_key = hash != std::string::npos && line.find(": ") != std::string::npos &&
                            line.find(' ', hash + 2) == line.find(": ") + 1;
        const std::string name = is_key ? line.substr(hash + 2, line.find(": ") - hash - 2) : "";
        // These keys are left out, because they exclude each other or need another key.
        if (is_key && name != "ratio" && name != "mib" && name != "ops" && name != "every_n" &&
            name != "true" && !in_hybrid) {
            line.erase(hash, 2);
        }
        text += line + "\n";
    }
    INFO(text);
    const PipelineConfig config = parse_config(text, "new.yaml", "/folder");
    CHECK(*config.kv.key_dtype == KEEL_DTYPE_Q8_0);
    CHECK(*config.policy.budget.tokens == 512);
    CHECK(*config.policy.log == "/folder/evictions.jsonl");
}

TEST_CASE("a new pipeline refuses unknown keys") {
    const std::vector<InitValue> values = {{"model.pth", "m"}};
    CHECK(test::error_text([&] { init_yaml(values); }, ErrorKind::usage) ==
          "expected a key of a pipeline, found 'model.pth'; did you mean 'path'?");
}

TEST_CASE("docs/reference/config.md agrees with the schema") {
    const std::string path = std::string(KEEL_SOURCE_DIR) + "/docs/reference/config.md";
    if (std::getenv("KEEL_UPDATE_DOCS") != nullptr)
        std::ofstream(path, std::ios::binary) << config_markdown();
    std::ifstream in(path, std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    const bool up_to_date = content.str() == config_markdown();
    INFO("run this test with KEEL_UPDATE_DOCS=1 to write docs/reference/config.md again");
    CHECK(up_to_date);
}
