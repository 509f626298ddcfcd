#include "config/config.hpp"
#include "config/config_places.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::pipeline;
using keel::test::error_text;

namespace {

// Appends `text` to a pipeline of two lines, so `text` begins at line 3.
std::string refused(const std::string &text) {
    return error_text(
        [&] { parse_config("model: m\nbackend: cpu\n" + text + "\n", "f.yaml", "/folder"); });
}
std::string refused_whole(const std::string &text) {
    return error_text([&] { parse_config(text, "f.yaml", "/folder"); });
}

struct Case {
    std::string text, message;
};

void check_all(const std::vector<Case> &cases) {
    for (const Case &c : cases) {
        INFO(c.text);
        CHECK(refused(c.text) == c.message);
    }
}

} // namespace

TEST_CASE("a file that is not a pipeline is refused") {
    CHECK(refused_whole("") ==
          "f.yaml:1:1: expected a pipeline, found nothing; 'keel config init MODEL' writes one");
    CHECK(refused_whole("# nothing\n") ==
          "f.yaml:1:1: expected a pipeline, found nothing; 'keel config init MODEL' writes one");
    CHECK(refused_whole("[1]") ==
          "f.yaml:1:1: expected a map of keys for a pipeline, found a list");
    CHECK(refused_whole("hello") ==
          "f.yaml:1:1: expected a map of keys for a pipeline, found 'hello'");
    CHECK(refused_whole("strict: true") == "f.yaml: expected the key 'model.path', found none; for "
                                           "example 'model: {path: ../models/tiny}'");
    CHECK(refused_whole("model: m") == "f.yaml: expected the key 'backend.plugin', found none; for "
                                       "example 'backend: {plugin: cpu}'");
    CHECK(refused_whole("model: {path: }\nbackend: cpu") ==
          "f.yaml:1:9: expected a path for 'model.path', found nothing");
}

TEST_CASE("unknown keys are refused with a suggestion") {
    check_all({
        {"polcy: none", "f.yaml:3:1: unknown key 'polcy' in a pipeline; did you mean 'policy'?"},
        {"kv: {dtpye: f16}", "f.yaml:3:6: unknown key 'dtpye' in 'kv'; did you mean 'dtype'?"},
        {"policy:\n  bugdet: {tokens: 5}",
         "f.yaml:4:3: unknown key 'bugdet' in 'policy'; did you mean 'budget'?"},
        {"policy: {tokens: 5}",
         "f.yaml:3:10: unknown key 'tokens' in 'policy'; did you mean 'policy.budget.tokens'?"},
        {"sync: {xyzzy: 5}",
         "f.yaml:3:8: unknown key 'xyzzy' in 'sync'; known keys: strategy, ops, replay, ahead"},
        {"policy.plugin: none", "f.yaml:3:1: unknown key 'policy.plugin' in a pipeline; write "
                                "nested keys as nested maps, for example 'policy: {plugin: none}'"},
        {"<<: {strict: true}", "f.yaml:3:1: unknown key '<<' in a pipeline; known keys: model, "
                               "backend, kv, policy, sync, "
                               "hybrid, sampling, generation, strict, fallback"},
        {"\"\": 1", "f.yaml:3:1: unknown key '' in a pipeline; known keys: model, backend, kv, "
                    "policy, sync, hybrid, "
                    "sampling, generation, strict, fallback"},
    });
}

TEST_CASE("settings that this version does not support are refused, not ignored") {
    check_all({
        {"hybrid: {backends: {a: cpu, b: cpu}, prefill: a, decode: b}",
         "f.yaml:3:20: expected 'backend' or 'hybrid', found both ('backend' at f.yaml:2:10); "
         "remove one of "
         "them"},
        {"hybrid: {prefill: gpu}",
         "f.yaml:3:19: expected the key 'hybrid.backends', because 'hybrid' is set; found none"},
    });
}

TEST_CASE("errors in a hybrid section say what is wrong") {
    const auto refused = [](const std::string &hybrid, bool named = true) {
        const std::string backends = named ? "backends: {a: cpu, b: {plugin: cpu}}, " : "";
        return error_text([&] {
            parse_config("model: m\nhybrid: {" + backends + hybrid + "}\n", "f.yaml", "/folder");
        });
    };
    const std::string names = " expected a name of 'hybrid.backends' (a, b) for ";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"prefill: a, decode: c",
         "f.yaml:2:68:" + names + "'hybrid.decode', found 'c'; did you mean 'a'?"},
        {"prefill: a",
         "f.yaml:2:57: backend a runs both prefill and decode, and 'hybrid.switch' lists no "
         "trigger; name another backend for prefill or decode, or set 'hybrid.switch.on'"},
        {"layers: [{range: 0-1, on: a}, {range: 1-2, on: b}]",
         "f.yaml:2:86: expected the range in 'hybrid.layers' to begin at layer 2, found 1-2; "
         "otherwise some layers would be on two backends"},
        {"layers: [{range: 0-1, on: a}, {range: 3-4, on: b}]",
         "f.yaml:2:86: expected the range in 'hybrid.layers' to begin at layer 2, found 3-4; "
         "otherwise the layers before this range would have no backend"},
        {"layers: [{range: 0-1, on: a}]",
         "f.yaml:2:29: backend b is not used in 'hybrid.layers'; use the backend there, or remove "
         "it from 'hybrid.backends'"},
        {"layers: [{range: x, on: a}]",
         "f.yaml:2:65: expected FIRST-LAST, two layers from 0 to 65535 (the range includes both), "
         "for 'range' in 'hybrid.layers', found 'x'"},
        {"layers: [{range: 0-1}]",
         "f.yaml:2:57: expected the keys range and on in 'hybrid.layers', found no on"},
        {"ffn_split: {a: 0.5, b: 0.5}", "f.yaml:2:48: unknown key 'ffn_split' in 'hybrid'; known "
                                        "keys: switch, backends, prefill, decode, "
                                        "layers"},
        {"switch: {on: tokens, to: b}",
         "f.yaml:2:61: expected the key 'hybrid.switch.after_tokens', because 'hybrid.switch.on' "
         "lists tokens; found none"},
        {"switch: {on: tokens, after_tokens: 5}",
         "f.yaml:2:61: expected the key 'hybrid.switch.to', because 'hybrid.switch.on' lists "
         "tokens; found none"},
        {"switch: {on: pressure, after_tokens: 5, to: b}",
         "f.yaml:2:85: expected tokens in 'hybrid.switch.on', because 'hybrid.switch.after_tokens' "
         "is set; found other triggers; add tokens to the list"},
        {"switch: {on: command, available_mib: 5}",
         "f.yaml:2:85: expected pressure in 'hybrid.switch.on', because "
         "'hybrid.switch.available_mib' is set; found other triggers; add pressure to the list"},
        {"switch: {on: tokens, after_tokens: 5, to: a}",
         "f.yaml:2:90: 'hybrid.switch.to': a already runs decode; name another backend, or "
         "remove 'hybrid.switch'"},
        {"prefill: a, layers: [{range: 0-1, on: a}, {range: 2, on: b}]",
         "f.yaml:2:68: 'hybrid' cannot combine prefill, decode and switch with layers in this "
         "version; keep "
         "one "
         "of them"},
        {"layers: [{range: 0-1, on: a}, {range: 2, on: b}], switch: {available_mib: 5}",
         "f.yaml:2:122: 'hybrid.switch.available_mib' sets the available memory below which decode "
         "switches to another backend, but 'hybrid.layers' fixes the backend of each layer; remove "
         "the key"},
        {"layers: [{range: 0-1, on: a}, {range: 2, on: b}], switch: {warmup_tokens: 3}",
         "f.yaml:2:122: 'hybrid.switch.warmup_tokens' sets the number of dummy tokens that a "
         "backend runs before decode switches to it, but 'hybrid.layers' fixes the backend of each "
         "layer; remove the key"},
        {"", "f.yaml:2:20: expected a key of 'hybrid' that gives work to the backends (prefill, "
             "decode, switch or layers), found none"},
    };
    for (const auto &[text, message] : cases) {
        INFO(text);
        CHECK(refused(text) == message);
    }
    CHECK(refused("backends: {a: cpu}, prefill: a", false) ==
          "f.yaml:2:20: expected a map of two backends or more, {NAME: {plugin: X}, NAME: {plugin: "
          "Y}} for "
          "'hybrid.backends', found 1; with one backend use 'backend'");
    CHECK(refused("backends: {a: {device: 0}, b: cpu}", false) ==
          "f.yaml:2:24: expected the key plugin for 'hybrid.backends.a', found none");
    CHECK(refused("backends: {a: {plugin: cpu, devce: 0}, b: cpu}", false) ==
          "f.yaml:2:38: unknown key 'devce' in 'hybrid.backends.a'; did you mean 'device'?");
    CHECK(refused("backends: {a: {plugin: cpu, kv: f12}, b: cpu}", false)
              .starts_with("f.yaml:2:42: expected one of f32, f16, bf16, q8_0, q4_0 for "
                           "'hybrid.backends.a.kv.dtype', found 'f12'"));
}

TEST_CASE("wrong lists of numbers and spans are refused with the expected and the found value") {
    const std::string steps = " expected a list of falling numbers from 0.01 to 0.99 for "
                              "'policy.trigger.pressure.steps', found ";
    const std::string spans = " expected a list of pairs [from, to] of integers from 0 to "
                              "16777216, with from less than to for "
                              "'policy.protect.spans', found ";
    check_all({
        {"policy: {trigger: {pressure: {steps: 0.5}}}", "f.yaml:3:38:" + steps + "'0.5'"},
        {"policy: {trigger: {pressure: {steps: []}}}", "f.yaml:3:38:" + steps + "an empty list"},
        {"policy: {trigger: {pressure: {steps: [0.5, 0.5]}}}",
         "f.yaml:3:44:" + steps + "0.5 after 0.5"},
        {"policy: {trigger: {pressure: {steps: [1]}}}", "f.yaml:3:39:" + steps + "'1'"},
        {"policy: {protect: {spans: 3}}", "f.yaml:3:27:" + spans + "'3'"},
        {"policy: {protect: {spans: [3]}}", "f.yaml:3:28:" + spans + "'3'"},
        {"policy: {protect: {spans: [[3]]}}", "f.yaml:3:28:" + spans + "a list of 1"},
        {"policy: {protect: {spans: [[3, 3]]}}", "f.yaml:3:28:" + spans + "[3, 3]"},
        {"policy: {protect: {spans: [[-1, 3]]}}", "f.yaml:3:29:" + spans + "'-1'"},
        {"policy: {log_positions: true}",
         "f.yaml:3:25: expected the key 'policy.log', because 'policy.log_positions' is set; found "
         "none; set policy.log to a file"},
    });
}

TEST_CASE("wrong types are refused with the expected and the found type") {
    check_all({
        {"sampling: x", "f.yaml:3:11: expected a map of keys for 'sampling', found 'x'"},
        {"sampling: [x]", "f.yaml:3:11: expected a map of keys for 'sampling', found a list"},
        {"sampling: {top_k: many}",
         "f.yaml:3:19: expected an integer from 0 to 16777216 for 'sampling.top_k', found 'many'"},
        {"sampling: {top_k: 1.5}",
         "f.yaml:3:19: expected an integer from 0 to 16777216 for 'sampling.top_k', found '1.5'"},
        {"sampling: {top_k: '5'}", "f.yaml:3:19: expected an integer from 0 to 16777216 for "
                                   "'sampling.top_k', found '5' in quotes; remove the quotes"},
        {"sampling: {top_k: }",
         "f.yaml:3:12: expected an integer from 0 to 16777216 for 'sampling.top_k', found nothing"},
        {"sampling: {top_k: [1]}",
         "f.yaml:3:19: expected an integer from 0 to 16777216 for 'sampling.top_k', found a list"},
        {"sampling: {top_p: {a: 1}}",
         "f.yaml:3:19: expected a number from 0 to 1 for 'sampling.top_p', found a map"},
        {"sampling: {temperature: warm}", "f.yaml:3:25: expected a number from 0 to 1000000 for "
                                          "'sampling.temperature', found 'warm'"},
        {"sampling: {temperature: .nan}", "f.yaml:3:25: expected a number from 0 to 1000000 for "
                                          "'sampling.temperature', found '.nan'"},
        {"sampling: {temperature: nan}", "f.yaml:3:25: expected a number from 0 to 1000000 for "
                                         "'sampling.temperature', found 'nan'"},
        {"strict: yes", "f.yaml:3:9: expected true or false for 'strict', found 'yes'"},
        {"strict: 'true'", "f.yaml:3:9: expected true or false for 'strict', found 'true' in "
                           "quotes; remove the quotes"},
        {"fallback: CPU",
         "f.yaml:3:11: expected a plugin's name (a-z, 0-9, _) or a path to a library for "
         "'fallback', found 'CPU'"},
        {"sync: lasy",
         "f.yaml:3:7: expected one of auto, lazy, eager, batched for 'sync.strategy', found "
         "'lasy'; did you mean 'lazy'?"},
        {"kv: int8",
         "f.yaml:3:5: expected one of f32, f16, bf16, q8_0, q4_0 for 'kv.dtype', found 'int8'"},
        {"generation: {prompt: [a]}",
         "f.yaml:3:22: expected a text for 'generation.prompt', found a list"},
        {"generation: {stop: a}",
         "f.yaml:3:20: expected a list of texts for 'generation.stop', found 'a'"},
        {"generation: {stop: [\"\"]}",
         "f.yaml:3:21: expected a list of texts for 'generation.stop', found an empty text"},
        {"generation: {stop: [[a]]}",
         "f.yaml:3:21: expected a list of texts for 'generation.stop', found a list"},
        {"policy: {log: ''}", "f.yaml:3:15: expected a path for 'policy.log', found '' in quotes"},
        {"policy: {log: \"a\\0b\"}",
         "f.yaml:3:15: expected a path for 'policy.log', found 'a\\x00b' in quotes"},
        {"policy: {trigger: {on: {a: 1}}}",
         "f.yaml:3:24: expected a list of prefill_end, budget, insert, "
         "every_n, pressure for 'policy.trigger.on', found a map"},
        {"policy: {trigger: {on: [budget, budget]}}",
         "f.yaml:3:33: expected a list of prefill_end, budget, "
         "insert, every_n, pressure for 'policy.trigger.on', "
         "found 'budget' twice"},
        {"policy: {trigger: {on: [bugdet]}}",
         "f.yaml:3:25: expected a list of prefill_end, budget, insert, "
         "every_n, pressure for 'policy.trigger.on', found 'bugdet'; did you "
         "mean 'budget'?"},
        {"policy: {params: [1]}",
         "f.yaml:3:18: expected a map of parameters for 'policy.params', found a list"},
        {"policy: {params: {a: {b: 1}}}", "f.yaml:3:22: expected a single value or a list of them "
                                          "for 'policy.params.a', found a map"},
        {"policy: {params: {a: [[1]]}}", "f.yaml:3:23: expected a single value or a list of them "
                                         "for 'policy.params.a', found a list"},
        {"policy: {params: {'a b': 1}}", "f.yaml:3:19: expected a parameter's name (letters, "
                                         "digits, _) in 'policy.params', found 'a b'"},
    });
}

TEST_CASE("ranges are checked at both ends") {
    check_all({
        {"sampling: {top_k: -1}",
         "f.yaml:3:19: expected an integer from 0 to 16777216 for 'sampling.top_k', found '-1'"},
        {"sampling: {top_k: 16777217}", "f.yaml:3:19: expected an integer from 0 to 16777216 for "
                                        "'sampling.top_k', found '16777217'"},
        {"sampling: {top_k: 99999999999999999999999}",
         "f.yaml:3:19: expected an integer from 0 to 16777216 for 'sampling.top_k', found "
         "'99999999999999999999999'"},
        {"sampling: {min_p: 1.01}",
         "f.yaml:3:19: expected a number from 0 to 1 for 'sampling.min_p', found '1.01'"},
        {"sampling: {min_p: 1e999}",
         "f.yaml:3:19: expected a number from 0 to 1 for 'sampling.min_p', found '1e999'"},
        {"kv: {max_mib: 0}", "f.yaml:3:15: expected a number from 0.001 to 16777216 or none for "
                             "'kv.max_mib', found '0'"},
        {"policy: {budget: {ratio: 0}}",
         "f.yaml:3:26: expected a number from 0.001 to 1 for 'policy.budget.ratio', found '0'"},
        {"policy: {budget: {tokens: 0}}", "f.yaml:3:27: expected an integer from 1 to 16777216 for "
                                          "'policy.budget.tokens', found '0'"},
        {"policy: {budget: {slack: none}}",
         "f.yaml:3:26: expected an integer from 0 to 16777216 or auto for "
         "'policy.budget.slack', found 'none'"},
        {"generation: {max_tokens: 0}", "f.yaml:3:26: expected an integer from 1 to 16777216 for "
                                        "'generation.max_tokens', found '0'"},
    });
    CHECK_NOTHROW(parse_config("model: m\nbackend: cpu\nsampling: {top_k: 16777216, min_p: 1, "
                               "top_p: 0, temperature: 1000000, repetition_penalty: 0.001}",
                               "f", "/"));
}

TEST_CASE("keys that belong together are checked together") {
    check_all({
        {"sync: {strategy: lazy, ops: 5}",
         "f.yaml:3:29: expected the strategy batched, because 'sync.ops' is set; found another; "
         "write 'strategy: batched', or remove 'sync.ops'"},
    });
}

TEST_CASE("settings of evictions are checked if the policy evicts") {
    const std::vector<Case> cases = {
        {"policy: {budget: {tokens: 5, ratio: 0.5}}",
         "f.yaml:3:27: expected only one of tokens, ratio and mib in 'policy.budget', found 2; "
         "keep one"},
        {"policy: {trigger: {on: []}}", "f.yaml:3:24: expected at least one trigger in "
                                        "'policy.trigger.on', found none; to evict nothing "
                                        "use 'policy: none'"},
        {"policy: {trigger: {on: [every_n]}}",
         "f.yaml:3:24: expected the key 'policy.trigger.every_n', because 'policy.trigger.on' "
         "lists every_n; found none"},
        {"policy: {trigger: {every_n: 5}}",
         "f.yaml:3:29: expected every_n in 'policy.trigger.on', because 'policy.trigger.every_n' "
         "is set; found none; add every_n to the list"},
    };
    for (const Case &c : cases) {
        INFO(c.text);
        const PipelineConfig config =
            parse_config("model: m\nbackend: cpu\n" + c.text + "\n", "f.yaml", "/");
        CHECK(error_text([&] { check_eviction(config.policy); }) == c.message);
    }
}

TEST_CASE("control characters in a value are not printed, and long values are cut") {
    const std::string text = refused("strict: \"\\e[31m" + std::string(5000, 'x') + "\"");
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.size() < 300);
}

TEST_CASE("an error about a key has the key's place, also if a comment follows the key") {
    const auto config = parse_config("model: m\nbackend: cpu\npolicy:\n  plugin: p\n  budget:\n"
                                     "    mib: 1\n",
                                     "f.yaml", "/folder");
    const auto placed = [&](const char *key) {
        return error_text([&] {
            at_its_line(config, config.policy.plugin.where,
                        [&] { throw_key_error(ErrorKind::input, key, "too small"); });
        });
    };
    CHECK(placed("policy.budget.mib") == "f.yaml:6:10: policy.budget.mib: too small");
    CHECK(placed("policy.budget.mib (room for 3 slots)") ==
          "f.yaml:6:10: policy.budget.mib (room for 3 slots): too small");
    CHECK(placed("policy.params (policy p asks for 3 slots)") ==
          "f.yaml:4:11: policy.params (policy p asks for 3 slots): too small");
}
