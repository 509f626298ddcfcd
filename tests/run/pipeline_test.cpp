// Tests of the decisions that a pipeline makes before it runs: which plugins it needs, whether it
// fits the memory, and which settings it does not change.
#include "base/log_sinks.hpp"
#include "run/memory_need.hpp"
#include "run/session.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <spdlog/sinks/ostream_sink.h>
#include <sstream>

using namespace keel;
using Catch::Contains;
using Catch::StartsWith;
using test::error_text;

namespace {

struct Mini {
    explicit Mini(int max_positions = 512) {
        test::MiniLlama mini;
        mini.max_positions = max_positions;
        test::make_mini_llama(folder.path(), mini);
        options.need_tokenizer = false;
    }
    // The model and the backend are in lines 1 and 2 of the config.
    pipeline::PipelineConfig config(const std::string &text) const {
        return pipeline::parse_config("model: " + folder.path().string() + "\nbackend: cpu\n" +
                                          text,
                                      "f.yaml", folder.path());
    }
    std::unique_ptr<Pipeline> open(const std::string &text) const {
        return std::make_unique<Pipeline>(config(text), options);
    }
    std::string refusal(const std::string &text, ErrorKind kind = ErrorKind::input) const {
        return error_text([&] { open(text); }, kind);
    }

    test::TempFolder folder;
    PipelineOptions options;
};

} // namespace

TEST_CASE("if a policy keeps everything, budget, trigger and allocator are not checked") {
    const Mini mini;
    std::filesystem::copy(std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins/none.so",
                          mini.folder / "quiet.so");
    for (const std::string policy : {"none", "./quiet.so"}) {
        INFO(policy);
        for (const char *rest :
             {"budget: {tokens: 5, ratio: 0.5}", "budget: {slack: 3}", "trigger: {on: [every_n]}",
              "trigger: {on: []}", "allocator: no_such_allocator",
              "protect: {prefix: 9}, budget: {tokens: 2}"}) {
            INFO(rest);
            const auto pipeline = mini.open("policy: {plugin: " + policy + ", " + rest + "}\n");
            CHECK(pipeline->policy_setup().keeps_all());
            CHECK(pipeline->policies().own().allocator.library == nullptr);
        }
    }
}

TEST_CASE("allocator auto: kvzip divides one budget over all heads, and other policies give equal "
          "shares") {
    const Mini mini;
    const auto allocator = [&](const std::string &policy, const std::string &value) {
        const auto pipeline = mini.open("policy: {plugin: " + policy +
                                        ", budget: {tokens: 64}, allocator: " + value + "}\n");
        const BoundPlugin &bound = pipeline->policies().own().allocator;
        std::string text = bound.library->id();
        for (const char *key : {"scope", "floor"}) {
            const keel_param *param = bound.params.find(key);
            if (param != nullptr)
                text += param->s != nullptr ? std::string(" ") + param->s
                                            : fmt::format(" {}", param->f);
        }
        return text;
    };
    CHECK(allocator("kvzip", "auto") == "adaptive global 0");
    CHECK(allocator("kvzip", "{params: {floor: 0.5}}") == "adaptive global 0.5");
    CHECK(allocator("kvzip", "adaptive") == "adaptive layer 0.2");
    CHECK(allocator("kvzip", "uniform") == "uniform");
    CHECK(allocator("snapkv", "auto") == "uniform");
    CHECK(allocator("sliding_window", "{plugin: auto}") == "uniform");
}

TEST_CASE("if a policy evicts, its settings are checked, with their lines") {
    const Mini mini;
    const auto pipeline =
        mini.open("policy: {plugin: sliding_window, params: {window: 92}, budget: {slack: 0}}\n");
    CHECK(pipeline->policy_setup().budget().at(0).slack == 0);
    CHECK(pipeline->policies().own().allocator.library != nullptr);
    CHECK(mini.refusal("policy:\n  plugin: sliding_window\n  budget: {tokens: 9, ratio: 0.5}\n") ==
          "f.yaml:5:20: expected only one of tokens, ratio and mib in 'policy.budget', found 2; "
          "keep one");
    CHECK_THAT(mini.refusal("policy:\n  plugin: sliding_window\n  trigger: {on: []}\n"),
               StartsWith("f.yaml:5:17: expected at least one trigger"));
    CHECK_THAT(
        mini.refusal("policy:\n  plugin: sliding_window\n  budget: {tokens: 10}\n"
                     "  protect: {prefix: 4, recent: 7}\n"),
        StartsWith("f.yaml:5:20: policy.budget.tokens: a budget of 10 slots leaves no room"));
    CHECK_THAT(mini.refusal("policy:\n  plugin: sliding_window\n  allocator: no_such_allocator\n",
                            ErrorKind::plugin),
               StartsWith("f.yaml:5:14: ") && Contains("no_such_allocator"));
}

TEST_CASE("memory pressure is refused if the policy cannot act on it, or if its keys contradict "
          "each other") {
    const Mini mini;
    CHECK(mini.refusal("policy:\n  plugin: none\n  trigger: {on: [pressure]}\n") ==
          "f.yaml:5:17: policy none never evicts, so the trigger pressure has no effect; remove "
          "pressure from policy.trigger.on, or choose a policy that evicts");
    const std::string window =
        "policy:\n  plugin: sliding_window\n  budget: {tokens: 64}\n  trigger: ";
    const auto pipeline = mini.open(
        window + "{on: [budget, pressure], pressure: {available_mib: 100, steps: [0.5]}}\n");
    const auto &pressure = pipeline->policy_setup().config().pressure;
    REQUIRE(pressure);
    CHECK(pressure->low == uint64_t{100} << 20);
    CHECK_FALSE(pressure->critical);
    CHECK(pressure->levels == std::vector<double>{0.5});
    CHECK_THAT(mini.refusal(window + "{on: [budget], pressure: {steps: [0.5]}}\n"),
               StartsWith("f.yaml:6:45: expected pressure in 'policy.trigger.on'"));
    CHECK_THAT(
        mini.refusal(window + "{on: [pressure], pressure: {available_mib: 5, critical_mib: 6}}\n"),
        StartsWith("f.yaml:6:72: expected 'policy.trigger.pressure.critical_mib' to be at most"));
}

TEST_CASE("settings that a policy without evictions ignores get a warning with their line, and no "
          "others") {
    const Mini mini;
    const auto warnings = [&](const std::string &text) {
        std::ostringstream out;
        const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(out);
        sink->set_pattern("%v");
        spdlog_logger().sinks().push_back(sink);
        mini.open(text);
        spdlog_logger().sinks().pop_back();
        return out.str();
    };
    CHECK(warnings("") == "");
    CHECK(warnings("policy: none\n") == "");
    const std::string told = warnings(
        "policy:\n  plugin: none\n  positions: rerotated\n  protect: {prefix: 4, recent: 2}\n"
        "  trigger: {on: [insert]}\n  budget: {tokens: 9}\n");
    for (const char *line : {"f.yaml:8:20: policy.budget has no effect: policy none never evicts",
                             "f.yaml:6:21: policy.protect.prefix has no effect",
                             "f.yaml:6:32: policy.protect.recent has no effect",
                             "f.yaml:5:14: policy.positions has no effect",
                             "f.yaml:7:17: policy.trigger.on has no effect"})
        CHECK_THAT(told, Contains(line));
    CHECK(std::count(told.begin(), told.end(), '\n') == 5);
    CHECK_THAT(warnings("kv: {count_policy_state: true}\n"),
               Contains("f.yaml:3:26: kv.count_policy_state has no effect: policy none"));
    const std::string window = "policy: {plugin: sliding_window, budget: {tokens: 64}}\n";
    CHECK(warnings(window) == "");
    CHECK_THAT(warnings(window + "kv: {count_policy_state: true}\n"),
               Contains("kv.count_policy_state has no effect without kv.max_mib"));
    CHECK(warnings(window + "kv: {count_policy_state: true, max_mib: 1}\n") == "");
    CHECK_THAT(warnings("policy: {plugin: sliding_window, budget: {tokens: 100000}}\n"),
               Contains("f.yaml:3:51: policy.budget.tokens is 100000 and model.context ") &&
                   Contains("so nothing will be evicted"));
    CHECK(warnings("policy: {plugin: sliding_window, budget: {tokens: 100000}, "
                   "trigger: {on: [insert]}}\n") == "");
}

TEST_CASE("a trigger on which the policy never acts is refused with its line") {
    const Mini mini;
    const std::string snapkv =
        "policy:\n  plugin: snapkv\n  budget: {tokens: 64}\n  params: {decode: ";
    CHECK(mini.refusal(snapkv + "false}\n  trigger: {on: [prefill_end, insert]}\n") ==
          "f.yaml:7:17: policy snapkv acts only at the end of the prompt, so the trigger insert "
          "has no effect; remove insert from policy.trigger.on, or choose a policy that also "
          "evicts later");
    CHECK_THAT(
        mini.refusal(snapkv + "false}\n  trigger: {on: [prefill_end, every_n], every_n: 9}\n"),
        StartsWith("f.yaml:7:17: ") && Contains("the trigger every_n has no effect"));
    CHECK_NOTHROW(
        // this is the default
        mini.open(snapkv + "false}\n  trigger: {on: [prefill_end, budget]}\n"));
    CHECK_NOTHROW(mini.open(snapkv + "true}\n  trigger: {on: [prefill_end, insert]}\n"));
}

TEST_CASE("spans of the config are protected and count against the budget") {
    const Mini mini;
    const std::string window =
        "policy:\n  plugin: sliding_window\n  budget: {tokens: 64}\n  protect: ";
    const auto spans = mini.open(window + "{prefix: 4, spans: [[2, 8], [6, 10], [30, 31]]}\n");
    CHECK(pinned_slots(spans->policy_setup().config()) == 7);
    CHECK_THAT(mini.refusal(window + "{spans: [[10, 90]]}\n"),
               StartsWith("f.yaml:5:20: policy.budget.tokens: ") && Contains("spans 80"));
}

TEST_CASE("a missing device is reported with the line that names it") {
    const Mini mini;
    const std::string model = "model: " + mini.folder.path().string() + "\n";
    const auto refused = [&](const std::string &text) {
        const auto config = pipeline::parse_config(model + text, "f.yaml", mini.folder.path());
        return error_text([&] { Pipeline(config, mini.options); });
    };
    CHECK_THAT(refused("backend:\n  plugin: cpu\n  device: radeon\n"),
               StartsWith("f.yaml:4:11: backend cpu"));
}

TEST_CASE("a pipeline that does not run leaves the content of its log unchanged") {
    Mini mini;
    const auto log = mini.folder.write("log.jsonl", "{\"sequence\":1}\n");
    const std::string text =
        "policy: {plugin: sliding_window, budget: {tokens: 64}, log: log.jsonl}\n";
    mini.options.check_only = true;
    mini.open(text);
    CHECK(std::filesystem::file_size(log) == 15);
    mini.options.check_only = false;
    const auto pipeline = mini.open(text);
    CHECK(std::filesystem::file_size(log) == 15);
    CHECK_THAT(mini.refusal(text),
               StartsWith("f.yaml:3:61: policy.log: ") && Contains("another pipeline"));
    CHECK_THAT(mini.refusal("policy: {log: no/such/folder/log.jsonl}\n"),
               StartsWith("f.yaml:3:15: policy.log: ") && Contains("create it first"));
    const Session session(*pipeline);
    CHECK(std::filesystem::file_size(log) == 0);
}

TEST_CASE("a default context is lowered to the memory, and a configured one is refused") {
    Mini mini(4096);
    const auto source = open_model_source(mini.folder.path());
    const MemoryNeed need =
        memory_need(*source, KEEL_DTYPE_NONE, KEEL_DTYPE_F16, KEEL_DTYPE_F16, 4096);
    REQUIRE(need.cache > 1000000);
    uint64_t available = 16 * need.total();
    mini.options.memory = [&] { return MemoryInfo{2 * available, available, "a test"}; };
    CHECK(mini.open("")->context() == 4096);
    available = need.total();
    const auto fitted = mini.open("");
    CHECK(fitted->context() < 4096);
    CHECK(fitted->context() >= 256);
    CHECK(fitted->context() % 256 == 0);
    CHECK(fitted->policy_setup().shape().max_slots == fitted->context());
    Session session(*fitted);
    CHECK_FALSE(session.can_take(4096));

    const std::string text = error_text(
        [&] {
            mini.options.check_only = true;
            Pipeline(pipeline::config_from_overrides(
                         std::vector<std::string>{"model.path=" + mini.folder.path().string(),
                                                  "backend.plugin=cpu", "model.context=4096"}),
                     mini.options);
        },
        ErrorKind::resource);
    CHECK_THAT(text, StartsWith("--set model.context: model.context: 4096 tokens need ") &&
                         Contains("(a test)") && Contains("lower model.context to "));
    const auto open = [&](const std::string &rest) {
        const auto config = pipeline::parse_config("model: {path: " + mini.folder.path().string() +
                                                       ", context: 4096}\nbackend: cpu\n" + rest,
                                                   "f.yaml", "/");
        return Pipeline(config, mini.options).context();
    };
    CHECK_THROWS_WITH(open(""), StartsWith("f.yaml:1:") && Contains("model.context: 4096 tokens"));
    // A limit that keeps the cache below the context makes the pipeline fit.
    CHECK(open("kv: {max_mib: 0.25}\n") == 4096);
    CHECK(open("policy: {plugin: sliding_window, budget: {tokens: 64}}\n") == 4096);
    Mini small; // the tables take less memory than the weights
    small.options.memory = mini.options.memory;
    available = need.weights + 1000;
    CHECK_THAT(small.refusal("", ErrorKind::resource),
               StartsWith("f.yaml:1:8: model.context: 256 tokens need "));
    // the memory is unknown, so nothing is refused
    mini.options.memory = [] { return MemoryInfo{}; };
    CHECK(open("") == 4096);
}

TEST_CASE("the ops of a pipeline are those of its steps and its cache, each once") {
    const Mini mini;
    const auto full = mini.open("");
    const auto evicting = mini.open("policy: {plugin: sliding_window, budget: {tokens: 64}}\n");
    auto ops = full->engines().ops();
    std::sort(ops.begin(), ops.end());
    CHECK(std::adjacent_find(ops.begin(), ops.end()) == ops.end());
    CHECK(evicting->engines().ops().size() ==
          full->engines().ops().size() + evicting->policy_setup().ops().size());
    CHECK_FALSE(evicting->policy_setup().ops().empty());
}
