#include "config/config.hpp"
#include "config/override.hpp"
#include "config/schema.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace keel;
using namespace keel::pipeline;

namespace {

PipelineConfig parse(std::string_view text) { return parse_config(text, "f.yaml", "/folder/sub"); }

constexpr std::string_view shortest = "model: m\nbackend: cpu\n";

} // namespace

TEST_CASE("a pipeline needs only two keys, and all other keys have defaults") {
    const PipelineConfig c = parse(shortest);
    CHECK(*c.model.path == "/folder/sub/m");
    CHECK(to_string(c.model.path.where) == "f.yaml:1:8");
    CHECK(*c.model.weights == KEEL_DTYPE_NONE);
    CHECK(*c.model.context == std::nullopt);
    CHECK(*c.backend.plugin == "cpu");
    CHECK(*c.backend.device == "auto");
    CHECK(c.backend.params.empty());
    CHECK(c.kv.key_type() == KEEL_DTYPE_F16);
    CHECK(c.kv.value_type() == KEEL_DTYPE_F16);
    CHECK(c.kv.max_bytes() == std::nullopt);
    CHECK(*c.policy.plugin == "none");
    CHECK(*c.policy.allocator.plugin == "auto");
    CHECK(c.policy.budget.kind() == BudgetKind::none);
    CHECK(*c.policy.budget.slack == std::nullopt);
    CHECK(*c.policy.positions == PositionMode::absolute);
    CHECK(*c.policy.trigger.on == std::vector{Trigger::prefill_end, Trigger::budget});
    CHECK(*c.policy.log == std::nullopt);
    CHECK(*c.sync.strategy == SyncStrategy::automatic);
    CHECK(*c.sync.replay == StepReplay::automatic);
    CHECK(*c.sync.ahead == StepAhead::automatic);
    CHECK_FALSE(*c.strict);
    CHECK(*c.fallback == "reference");
    CHECK(*c.sampling.temperature == 0.8);
    CHECK(*c.sampling.top_k == 40);
    CHECK(*c.sampling.top_p == 0.95);
    CHECK(*c.sampling.min_p == 0.05);
    CHECK(*c.sampling.repetition_penalty == 1.0);
    CHECK(c.generation.prompt->empty());
    CHECK(*c.generation.max_tokens == 128);
    CHECK(c.generation.stop->empty());
    CHECK(c.sampling.temperature.is_default());
    CHECK_FALSE(c.backend.plugin.is_default());
}

TEST_CASE("every key reaches its member") {
    const PipelineConfig c = parse(R"(
model: {path: /abs/../m, weights: q4_0, context: 512}
backend: {plugin: ./my.so, device: 1, params: {threads: 2, isa: 'avx2', list: [1, b], empty: }}
kv: {dtype: f32, key_dtype: q8_0, value_dtype: bf16, max_mib: 1.5}
policy:
  plugin: snapkv
  params: {window: 32}
  allocator: {plugin: pyramid, params: {beta: 0.5}}
  budget: {tokens: 100, slack: 0}
  protect: {prefix: 4, recent: 8, system_prompt: false}
  positions: rerotated
  trigger: {on: [insert, every_n], every_n: 16}
  log: out/e.jsonl
  seed: 9
sync: {strategy: batched, ops: 25, replay: off}
strict: true
fallback: other
sampling: {temperature: 0, top_k: 1, top_p: 1, min_p: 0.5, repetition_penalty: 1.25, )"
                                   R"(repetition_window: 64, seed: 3}
generation: {prompt: "a\nb", max_tokens: 5, stop: ["x", y z]}
)");
    CHECK(*c.model.path == "/m");
    CHECK(*c.model.weights == KEEL_DTYPE_Q4_0);
    CHECK(*c.model.context == 512);
    CHECK(*c.backend.plugin == "/folder/sub/my.so");
    CHECK(*c.backend.device == "1");
    REQUIRE(c.backend.params.size() == 4);
    const RawParam &threads = c.backend.params[0];
    CHECK(threads.key == "threads");
    CHECK(threads.text == "2");
    CHECK_FALSE(threads.quoted);
    CHECK(to_string(threads.where) == "f.yaml:3:57");
    CHECK(to_string(threads.key_where) == "f.yaml:3:48");
    CHECK(c.backend.params[1].quoted);
    CHECK(c.backend.params[2].is_sequence);
    CHECK(c.backend.params[2].items == std::vector<std::string>{"1", "b"});
    CHECK(c.backend.params[3].is_null);
    CHECK(*c.kv.dtype == KEEL_DTYPE_F32);
    CHECK(c.kv.key_type() == KEEL_DTYPE_Q8_0);
    CHECK(c.kv.value_type() == KEEL_DTYPE_BF16);
    CHECK(c.kv.max_bytes() == 1572864);
    CHECK(*c.policy.plugin == "snapkv");
    CHECK(*c.policy.plugin != "none");
    CHECK(c.policy.params.at(0).key == "window");
    CHECK(*c.policy.allocator.plugin == "pyramid");
    CHECK(c.policy.allocator.params.at(0).text == "0.5");
    CHECK(c.policy.budget.kind() == BudgetKind::tokens);
    CHECK(*c.policy.budget.tokens == 100);
    CHECK(to_string(c.policy.budget.where()) == "f.yaml:9:20");
    CHECK(*c.policy.budget.slack == 0);
    CHECK(*c.policy.protect.prefix == 4);
    CHECK(*c.policy.protect.recent == 8);
    CHECK_FALSE(*c.policy.protect.system_prompt);
    CHECK(*parse(shortest).policy.protect.system_prompt);
    CHECK(*parse(shortest).policy.protect.prefix == 4); // the default keeps four attention sinks
    CHECK(*c.policy.positions == PositionMode::rerotated);
    CHECK(c.policy.trigger.has(Trigger::insert));
    CHECK_FALSE(c.policy.trigger.has(Trigger::budget));
    CHECK(*c.policy.trigger.every_n == 16);
    CHECK(*c.policy.log == "/folder/sub/out/e.jsonl");
    CHECK(*c.policy.seed == 9);
    CHECK(*c.sync.strategy == SyncStrategy::batched);
    CHECK(c.sync.ops_per_submit() == 25);
    CHECK(*c.sync.replay == StepReplay::off);
    CHECK(*c.strict);
    CHECK(*c.fallback == "other");
    CHECK(*c.sampling.temperature == 0);
    CHECK(*c.sampling.top_k == 1);
    CHECK(*c.sampling.top_p == 1);
    CHECK(*c.sampling.min_p == 0.5);
    CHECK(*c.sampling.repetition_penalty == 1.25);
    CHECK(*c.sampling.repetition_window == 64);
    CHECK(*c.sampling.seed == 3);
    CHECK(*c.generation.prompt == "a\nb");
    CHECK(*c.generation.max_tokens == 5);
    CHECK(*c.generation.stop == std::vector<std::string>{"x", "y z"});
}

TEST_CASE("every word of every choice is read correctly") {
    const std::string base(shortest);
    const auto weights = [&](std::string_view w) {
        return *parse(base + "kv: " + std::string(w) + "\n").kv.dtype;
    };
    CHECK(weights("f32") == KEEL_DTYPE_F32);
    CHECK(weights("f16") == KEEL_DTYPE_F16);
    CHECK(weights("bf16") == KEEL_DTYPE_BF16);
    CHECK(weights("q8_0") == KEEL_DTYPE_Q8_0);
    CHECK(weights("q4_0") == KEEL_DTYPE_Q4_0);
    const auto sync = [&](std::string_view w) {
        return *parse(base + "sync: " + std::string(w) + "\n").sync.strategy;
    };
    CHECK(sync("auto") == SyncStrategy::automatic);
    CHECK(sync("lazy") == SyncStrategy::lazy);
    CHECK(sync("eager") == SyncStrategy::eager);
    CHECK(sync("batched") == SyncStrategy::batched);
    const auto mode = [&](std::string_view w) {
        return *parse(base + "policy: {positions: " + std::string(w) + "}\n").policy.positions;
    };
    CHECK(mode("absolute") == PositionMode::absolute);
    CHECK(mode("rerotated") == PositionMode::rerotated);
    CHECK(mode("auto") == PositionMode::automatic);
    const auto on = [&](std::string_view w) {
        return parse(base + "policy: {trigger: {on: " + std::string(w) + "}}\n")
            .policy.trigger.on->at(0);
    };
    CHECK(on("prefill_end") == Trigger::prefill_end);
    CHECK(on("[budget]") == Trigger::budget);
    CHECK(on("[insert]") == Trigger::insert);
    CHECK(on("[every_n]") == Trigger::every_n);
}

TEST_CASE("a section may be written as its main value, or be empty") {
    const PipelineConfig c =
        parse("model: m\nbackend: cpu\npolicy: sliding_window\nsync: eager\nkv:\nsampling:\n");
    CHECK(*c.policy.plugin == "sliding_window");
    CHECK(*c.sync.strategy == SyncStrategy::eager);
    CHECK(*c.kv.dtype == KEEL_DTYPE_F16);
    CHECK(parse("model: m\nbackend: cpu\nsync: batched\n").sync.ops_per_submit() == 50);
    const PipelineConfig t = parse(
        "model: m\nbackend: cpu\npolicy: {plugin: x, trigger: [insert], allocator: pyramid}\n");
    CHECK(*t.policy.trigger.on == std::vector{Trigger::insert});
    CHECK(*t.policy.allocator.plugin == "pyramid");
}

TEST_CASE("a key without a value or with auto or none counts as not given if it has no default") {
    const PipelineConfig c =
        parse("model: {path: m, context: auto}\nbackend: {plugin: cpu, params: }\n"
              "kv: {key_dtype: , max_mib: none}\n"
              "policy: {log: null, budget: {tokens: ~, ratio: 0.5, slack: auto}}\n"
              "generation: {prompt: }\n");
    CHECK(*c.model.context == std::nullopt);
    CHECK(*c.kv.key_dtype == std::nullopt);
    CHECK(c.kv.max_bytes() == std::nullopt);
    CHECK(*c.policy.log == std::nullopt);
    CHECK(c.policy.budget.kind() == BudgetKind::ratio);
}

TEST_CASE("budget and trigger are checked only if the policy evicts, which the file does not say") {
    for (const char *text : {"  budget: {tokens: 2, ratio: 0.5}\n", "  budget: {slack: 3}\n",
                             "  trigger: {on: [], every_n: 3}\n", "  trigger: {on: [every_n]}\n"}) {
        for (const char *policy : {"none", "/plugins/keeps.so", "sliding_window"}) {
            INFO(policy << text);
            CHECK_NOTHROW(parse(std::string("model: m\nbackend: cpu\npolicy:\n  plugin: ") +
                                policy + "\n" + text));
        }
    }
}

TEST_CASE("every row of the schema has all its parts") {
    std::set<std::string_view> seen;
    for (const auto &key : schema().keys) {
        INFO(key->path);
        CHECK(seen.insert(key->path).second);
        CHECK(find_section(parent_path(key->path)) != nullptr);
        CHECK_FALSE(key->doc.empty());
        CHECK(key->doc.ends_with("."));
        CHECK_FALSE(key->example.empty());
        const std::string expected = key->expectation();
        const bool ranged = expected.find(" from ") != std::string::npos;
        CHECK(ranged == (key->rule.maximum > key->rule.minimum));
        if (!key->rule.word.empty()) CHECK_FALSE(key->default_text().empty());
        PipelineConfig config;
        key->set_default(std::string(key->path), config);
        CHECK(key->where(config) == nullptr);
    }
    for (const SectionSpec &section : schema().sections) {
        INFO(section.path);
        if (!section.shorthand.empty())
            CHECK(find_key(join_path(section.path, section.shorthand)) != nullptr);
    }
    for (const OverrideRule &rule : override_rules()) {
        CHECK(find_key(join_path(rule.section, rule.key)) != nullptr);
        for (const std::string_view key : rule.drops) {
            const std::string path = join_path(rule.section, key);
            CHECK((find_key(path) != nullptr || find_section(path) != nullptr));
        }
    }
}

TEST_CASE("a setting carries its key and its place") {
    const PipelineConfig c =
        parse("model: m\nhybrid: {backends: {a: cpu, b: {plugin: cpu, kv: f32}}, "
              "decode: a, prefill: b}\n");
    CHECK(c.model.path.key == "model.path");
    CHECK(c.kv.max_mib.key == "kv.max_mib");
    CHECK(c.kv.max_mib.is_default());
    const HybridBackend &b = c.hybrid.backend("b");
    CHECK(b.kv_dtype.key == "hybrid.backends.b.kv.dtype");
    CHECK(to_string(b.kv_dtype.where) == "f.yaml:2:50");
}

TEST_CASE("every example in the schema is a valid value of its key") {
    for (const auto &key : schema().keys) {
        INFO(key->path);
        std::vector<std::string> overrides = {"model.path=m", "backend.plugin=cpu"};
        overrides.push_back(std::string(key->path) + "=" + std::string(key->example));
        if (key->path == "policy.budget.slack") overrides.push_back("policy.budget.tokens=512");
        if (key->path == "sync.ops") overrides.push_back("sync=batched");
        if (key->path == "policy.log_positions") overrides.push_back("policy.log=e.jsonl");
        if (key->path.starts_with("hybrid.")) {
            const std::string backends = "hybrid.backends={gpu: x, host: y}";
            if (key->path != "hybrid.backends") overrides.insert(overrides.begin() + 2, backends);
            if (key->path == "hybrid.backends" || key->path == "hybrid.switch.warmup_tokens")
                overrides.push_back("hybrid.switch.on=command");
            if (key->path == "hybrid.prefill") overrides.push_back("hybrid.decode=host");
            if (key->path == "hybrid.decode") overrides.push_back("hybrid.prefill=gpu");
            if (key->path == "hybrid.switch.available_mib")
                overrides.push_back("hybrid.switch.on=pressure");
            if (key->path == "hybrid.switch.to" || key->path == "hybrid.switch.after_tokens")
                overrides.push_back("hybrid.switch.on=tokens");
            if (key->path.starts_with("hybrid.switch.") &&
                key->path != "hybrid.switch.warmup_tokens") {
                overrides.push_back("hybrid.switch.after_tokens=9");
                overrides.push_back("hybrid.switch.to=gpu");
                overrides.push_back("hybrid.decode=host");
            }
            if (key->path == "hybrid.switch.available_mib")
                overrides.push_back("hybrid.switch.on=[pressure, tokens]");
        }
        CHECK_NOTHROW(config_from_overrides(overrides));
    }
}
