#include "config/config.hpp"
#include "config/config_writer.hpp"
#include "config/override.hpp"
#include "platform/paths.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::pipeline;
using keel::test::error_text;

namespace {

constexpr std::string_view file = R"(
model: {path: m}
backend: {plugin: cpu, params: {threads: 2}}
kv: {key_dtype: q8_0, value_dtype: q4_0}
policy:
  plugin: snapkv
  params: {window: 32, kernel: 7}
  allocator: {plugin: pyramid, params: {beta: 0.5}}
  budget: {tokens: 100, slack: 8}
  trigger: {on: [budget, every_n], every_n: 16}
sync: {strategy: batched, ops: 25}
)";

PipelineConfig with(const std::vector<std::string> &overrides) {
    return parse_config(file, "f.yaml", "/folder", overrides);
}
std::string override_refused(const std::string &override_text, ErrorKind kind = ErrorKind::input) {
    return error_text([&] { with({override_text}); }, kind);
}
std::vector<std::string> keys_of(const std::vector<RawParam> &params) {
    std::vector<std::string> keys;
    for (const RawParam &param : params) keys.push_back(param.key);
    return keys;
}
using Texts = std::vector<std::string>;

} // namespace

TEST_CASE("an override replaces a value, a later override wins, and the place of the value is the "
          "option") {
    const PipelineConfig c = with({"sampling.top_k=3", "sampling.top_k=5", "strict=true"});
    CHECK(*c.sampling.top_k == 5);
    CHECK(to_string(c.sampling.top_k.where) == "--set sampling.top_k");
    CHECK(*c.strict);
    CHECK(*c.policy.budget.tokens == 100);
    CHECK(to_string(c.policy.budget.tokens.where) == "f.yaml:9:20");
}

TEST_CASE("override values are YAML, and texts need no quotes") {
    const PipelineConfig c =
        with({"policy.trigger.on=[insert, budget]", "policy.params={window: 64}",
              "generation.stop=[\"a, b\", c]", "generation.prompt=Well: [said # he"});
    CHECK(*c.policy.trigger.on == std::vector{Trigger::insert, Trigger::budget});
    CHECK(*c.generation.stop == Texts{"a, b", "c"});
    CHECK(*c.generation.prompt == "Well: [said # he");
    CHECK(*with({"generation.prompt=\"a\\nb\""}).generation.prompt == "a\nb");
    CHECK(with({"generation.prompt="}).generation.prompt->empty());
    CHECK(*with({"generation.prompt=a=b"}).generation.prompt == "a=b");
    CHECK(*with({"policy.log=x.jsonl", "policy.log=null"}).policy.log == std::nullopt);
}

TEST_CASE("sections and params are merged key by key") {
    const PipelineConfig c =
        with({"policy.params.window=64", "policy={seed: 5, protect: {prefix: 4}}"});
    REQUIRE(keys_of(c.policy.params) == Texts{"window", "kernel"});
    CHECK(c.policy.params[0].text == "64");
    CHECK(to_string(c.policy.params[0].where) == "--set policy.params.window");
    CHECK(c.policy.params[1].text == "7");
    CHECK(*c.policy.seed == 5);
    CHECK(*c.policy.protect.prefix == 4);
    CHECK(*c.policy.plugin == "snapkv");
}

TEST_CASE(
    "another plugin removes the file's params of its section and keeps the overridden params") {
    const PipelineConfig c = with({"policy.params.window=64", "policy.plugin=sliding_window"});
    CHECK(keys_of(c.policy.params) == Texts{"window"});
    CHECK(c.policy.params[0].text == "64");
    CHECK(keys_of(c.policy.allocator.params) == Texts{"beta"});
    CHECK(keys_of(c.backend.params) == Texts{"threads"});
    CHECK(with({"policy=none"}).policy.params.empty());
    CHECK(with({"policy={plugin: none}"}).policy.params.empty());
    CHECK(with({"backend.plugin=./other.so"}).backend.params.empty());
    const PipelineConfig a = with({"policy.allocator.plugin=uniform"});
    CHECK(a.policy.allocator.params.empty());
    CHECK(keys_of(a.policy.params) == Texts{"window", "kernel"});
}

TEST_CASE("the same plugin, named again, keeps the params") {
    CHECK(keys_of(with({"policy.plugin=snapkv"}).policy.params) == Texts{"window", "kernel"});
    // An override with the default value changes nothing.
    const std::string plain = "model: m\nbackend: cpu\npolicy: {allocator: {params: {a: 1}}}\n";
    const std::vector<std::string> same = {"policy.allocator.plugin=auto"};
    CHECK(keys_of(parse_config(plain, "f", "/", same).policy.allocator.params) == Texts{"a"});
    const std::vector<std::string> other = {"policy.allocator.plugin=pyramid"};
    CHECK(parse_config(plain, "f", "/", other).policy.allocator.params.empty());
}

TEST_CASE("an override removes keys that contradict it") {
    const PipelineConfig ratio = with({"policy.budget.ratio=0.5"});
    CHECK(ratio.policy.budget.kind() == BudgetKind::ratio);
    CHECK(*ratio.policy.budget.slack == 8);
    CHECK(with({"policy.budget={mib: 3}"}).policy.budget.kind() == BudgetKind::mib);
    CHECK(with({"policy.budget.ratio=0.5", "policy.budget.tokens=7"}).policy.budget.kind() ==
          BudgetKind::tokens);
    CHECK(with({"policy.budget=null"}).policy.budget.kind() == BudgetKind::none);
    CHECK(with({"kv=f32"}).kv.key_type() == KEEL_DTYPE_F32);
    CHECK(with({"kv.key_dtype=f32"}).kv.value_type() == KEEL_DTYPE_Q4_0);
    CHECK(*with({"sync=lazy"}).sync.ops == std::nullopt);
    CHECK(*with({"sync=batched"}).sync.ops == 25);
    CHECK(*with({"policy.trigger.on=[insert]"}).policy.trigger.every_n == std::nullopt);
    CHECK(*with({"policy.trigger.on=[insert, every_n]"}).policy.trigger.every_n == 16);
    CHECK(*with({"policy.trigger=every_n"}).policy.trigger.every_n == 16);
}

TEST_CASE("paths in overrides start from the working directory") {
    const auto here = absolute_path(".");
    const PipelineConfig c = with({"model=other", "policy.log=e.jsonl", "policy.plugin=./p.so"});
    CHECK(*c.model.path == here / "other");
    CHECK(*c.policy.log == here / "e.jsonl");
    CHECK(*c.policy.plugin == (here / "p.so").string());
    CHECK(*with({}).model.path == "/folder/m");
}

TEST_CASE("errors in overrides name the option") {
    CHECK(override_refused("polcy.plugin=none") ==
          "--set polcy.plugin: unknown key 'polcy' in a pipeline; did you mean 'policy'?");
    CHECK(override_refused("policy.budget.tokns=5") ==
          "--set policy.budget.tokns: unknown key 'tokns' in "
          "'policy.budget'; did you mean 'tokens'?");
    CHECK(override_refused("policy.budget.tokens=many") ==
          "--set policy.budget.tokens: expected an integer from 1 to "
          "16777216 for 'policy.budget.tokens', found 'many'");
    CHECK(override_refused("sampling.top_k=") ==
          "--set sampling.top_k: expected an integer from 0 to 16777216 for "
          "'sampling.top_k', found nothing");
    CHECK(override_refused("model.path.x=1") ==
          "--set model.path.x: expected a path for 'model.path', found a map");
    CHECK(override_refused("policy.trigger.on=[a") ==
          "--set policy.trigger.on: expected valid YAML, found: end of sequence flow not found");
    CHECK(override_refused("sampling={top_k: 1, top_k: 2}") ==
          "--set sampling: expected each key once, found 'top_k' again (first at --set sampling)");
    CHECK(override_refused("hybrid={a: 1}")
              .starts_with("--set hybrid: unknown key 'a' in 'hybrid'; known keys: "));
    CHECK(override_refused("generation.prompt=\x01") ==
          "--set generation.prompt: expected UTF-8 text, found the control character \\x01");
}

TEST_CASE("a value has the name of the option that set it") {
    const std::vector<std::string> sets = {"model=m", "backend=cpu", "sampling.seed=5",
                                           "sampling.top_k=x"};
    const OverrideNames names{.option = "--against-set", .of_key = {{"sampling.seed", "--seed"}}};
    CHECK(error_text([&] {
              config_from_overrides(sets, names);
          }).starts_with("--against-set sampling.top_k: expected an integer "));
    const PipelineConfig c = config_from_overrides(std::span(sets).first(3), names);
    CHECK(to_string(c.sampling.seed.where) == "--seed");
}

TEST_CASE("a single backend and a hybrid replace each other") {
    const std::string both =
        "model: m\nhybrid: {backends: {a: {plugin: cpu, params: {threads: 2}}, b: cpu}, decode: a, "
        "prefill: b}\n";
    const auto with_sets = [&](const std::vector<std::string> &sets) {
        return parse_config(both, "f.yaml", "/folder", sets);
    };
    CHECK_FALSE(with_sets({"backend=cpu"}).hybrid.is_given());
    CHECK(with_sets({"hybrid.decode=b", "hybrid.prefill=a"}).hybrid.decode.value == "b");
    const PipelineConfig params = with_sets({"hybrid.backends.a.params.threads=1"});
    CHECK(params.hybrid.backend("a").params.at(0).text == "1");
    CHECK(*params.hybrid.backend("a").plugin == "cpu");
    CHECK(with_sets({"hybrid.backends.a.plugin=other"}).hybrid.backend("a").params.empty());
    CHECK(with_sets({"hybrid.backends.c.plugin=other"}).hybrid.backends->size() == 3);
    const std::vector<std::string> alone = {
        "model=m", "backend=cpu", "hybrid.backends={a: cpu, b: cpu}",
        "hybrid.layers=[{range: 0-1, on: a}, {range: 2, on: b}]"};
    const PipelineConfig split = config_from_overrides(alone);
    CHECK(split.hybrid.mode() == HybridMode::by_layers);
    CHECK(split.backend.plugin->empty());
    CHECK(parse_config(to_yaml(split), "f", "/") == split);
    CHECK(override_refused("hybrid.prefill=x")
              .find("expected the key 'hybrid.backends', because 'hybrid' is set") !=
          std::string::npos);
}

TEST_CASE("an override that is not KEY=VALUE is a usage error") {
    const std::string form = ": expected KEY=VALUE, for example --set policy.budget.tokens=64";
    for (const std::string text :
         {"strict", "=5", "a..b=1", ".a=1", "a.=1", "a b=1", "a.b.c.d.e.f.g.h.i=1", ""}) {
        INFO(text);
        CHECK(override_refused(text, ErrorKind::usage) == "--set " + text + form);
    }
}

TEST_CASE("overrides without a file make a pipeline") {
    const std::vector<std::string> overrides = {"model=m", "backend=cpu"};
    const PipelineConfig c = config_from_overrides(overrides);
    CHECK(*c.model.path == absolute_path("m"));
    CHECK(error_text([] { config_from_overrides({}); }) ==
          "a pipeline without a file: expected the key 'model.path', found none; for example "
          "'model: {path: "
          "../models/tiny}'");
}

TEST_CASE("the settings of an experiment's arm are merged like overrides, with places in their own "
          "file") {
    YamlNode base = parse_yaml(file, {"f.yaml", "/folder"});
    merge_overrides(
        base,
        parse_yaml("{policy: {plugin: sliding_window, protect: {prefix: 4}}, kv: {dtype: q4_0}}",
                   {"ab.yaml", "/ab"}));
    const PipelineConfig c = make_config(base);
    CHECK(*c.policy.plugin == "sliding_window");
    CHECK(c.policy.params.empty());
    CHECK(*c.policy.budget.tokens == 100);
    CHECK(c.kv.key_type() == KEEL_DTYPE_Q4_0);
    CHECK(to_string(c.policy.plugin.where) == "ab.yaml:1:19");
}
