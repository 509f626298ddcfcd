#include "run/explain.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "ops/explain.hpp"
#include "run/pipeline.hpp"

namespace keel {

using pipeline::HybridMode;

namespace {

// Describes how decode steps are submitted to the device.
std::string replay_text(const Engine &engine) {
    const std::string why = engine.graph->why_not_recorded();
    if (!why.empty()) return "op by op: " + why;
    const std::string &words = engine.executor->recording_words();
    return fmt::format("recorded once and submitted again{}",
                       words.empty() ? "" : " (" + words + ")");
}

// Describes whether greedy generation waits for each token before it queues the next step.
std::string ahead_text(const Engine &engine) {
    const std::string why = engine.executor->why_not_ahead();
    if (!why.empty()) return "after each token is read: " + why;
    return engine.graph->can_run_ahead()
               ? "before the token is read, where nothing is decided in between"
               : "after each token is read: not all of a step runs there";
}

// Describes the memory of the cache: "12 KiB per token", and the memory of the layers with a
// window.
std::string kv_text(const Engine &engine) {
    const uint64_t windows = engine.held_window_bytes();
    std::string text = format_bytes(engine.bytes_per_token()) + " per token";
    if (windows > 0) text += fmt::format(", up to {} for windows", format_bytes(windows));
    const std::string split = engine.split.text();
    return split.empty() ? text : text + "\nlayers: " + split;
}

// Describes the policy and the tokens that it must not evict. Empty if the policy never evicts.
std::string policy_text(const PolicySetup &setup) {
    if (setup.keeps_all()) return {};
    const CacheConfig &config = setup.config();
    return fmt::format("policy {}, allocator {}: never evicts the first {} and the latest {} "
                       "tokens (policy.protect.prefix and .recent)\n",
                       config.policy.name, config.allocator.name, config.protect_prefix,
                       config.protect_recent);
}

std::string explain_engine(const Pipeline &pipeline, const Engine &engine) {
    const Device &device = engine.device();
    const Graph &graph = *engine.graph;
    const KvShape &kv = engine.kv_shape;
    const bool is_hybrid = pipeline.config().hybrid.is_given();
    const std::string prefill_title =
        fmt::format("prefill, up to {} tokens a step", graph.max_tokens());
    std::string conversions;
    if (&engine == pipeline.engines().front().get()) {
        for (const Conversion &conversion : pipeline.source().conversions(
                 *pipeline.config().model.weights, device.info().weight_dtypes))
            conversions += "  " + conversion_text(conversion) + "\n";
    }
    return fmt::format(
               "{}backend {} on '{}': {}\nsync: {}\ndecode steps: {}\ngreedy steps are queued "
               "{}\nweights: {} ({} read per "
               "token)\n{}KV cache: keys "
               "{}, values {}, {}\n{}",
               is_hybrid ? fmt::format("== {} ==\n", engine.name) : "", device.plugin(),
               device.device_info().name, device.info().description,
               to_string(engine.executor->stream().strategy()), replay_text(engine),
               ahead_text(engine), engine.weights->dtype_name(),
               format_bytes(engine.weights->bytes_per_token(device)), conversions,
               keel_dtype_name(kv.key_dtype), keel_dtype_name(kv.value_dtype), kv_text(engine),
               policy_text(*engine.policy_setup)) +
           explain_table("decode, one token a step", explain_rows(graph.ops(StepForm::decode))) +
           explain_table(prefill_title, explain_rows(graph.ops(StepForm::prefill))) +
           (graph.taps().list().empty() ? std::string{}
                                        : explain_table("of these, run for the policy",
                                                        explain_rows(graph.taps().list()))) +
           (engine.policy_setup->ops().empty()
                ? std::string{}
                : explain_table("KV cache, when slots go",
                                explain_rows(engine.policy_setup->ops())));
}

// Describes the work of each backend, and how many bytes are copied between backends.
std::string explain_hybrid(const Pipeline &pipeline) {
    const pipeline::HybridSection &hybrid = pipeline.config().hybrid;
    std::string text = "hybrid\n";
    if (pipeline.mode() == HybridMode::taking_turns) {
        const pipeline::SwitchSection &s = hybrid.switching;
        const Engine &decode = pipeline.engines().decode(), &prefill = pipeline.engines().prefill();
        text += fmt::format("  prefill: {}, decode: {}\n", prefill.name, decode.name);
        if (&prefill != &decode) {
            text += fmt::format(
                "  the cache crosses at the end of each prompt, and back before the next: {} per "
                "token of it\n",
                format_bytes(decode.bytes_per_token()));
        }
        if (s.has(pipeline::SwitchTrigger::tokens))
            text +=
                fmt::format("  switch to {} after {} tokens, and {} dummy tokens to warm it up\n",
                            *s.to, **s.after_tokens, *s.warmup_tokens);
        if (s.has(pipeline::SwitchTrigger::pressure))
            text += fmt::format("  switch to {} under memory pressure\n", *s.to);
        if (s.has(pipeline::SwitchTrigger::command))
            text += fmt::format("  switch at the command /switch NAME, after {} dummy tokens to "
                                "warm the backend up\n",
                                *s.warmup_tokens);
        text += "  bytes that cross per decoded token: 0, but for the cache at a switch\n";
    } else {
        for (const auto &engine : pipeline.engines())
            text += fmt::format("  layers {} to {}: {}\n", engine->part.first, engine->part.end - 1,
                                engine->name);
        text += fmt::format(
            "  bytes that cross per token: {} (the residual stream, out of one backend and into "
            "the next, at {} border(s))\n",
            crossing_bytes_per_token(pipeline), pipeline.engines().size() - 1);
    }
    return text;
}

} // namespace

uint64_t crossing_bytes_per_token(const Pipeline &pipeline) {
    if (pipeline.mode() != HybridMode::by_layers) return 0;
    const auto residual = sizeof(float) * static_cast<uint64_t>(pipeline.model().hidden_size);
    // the data is read from one backend and written to the next one
    return 2 * residual * (pipeline.engines().size() - 1);
}

std::string explain_pipeline(const Pipeline &pipeline) {
    if (!pipeline.config().hybrid.is_given()) return explain_engine(pipeline, pipeline.engine());
    std::string text = explain_hybrid(pipeline);
    for (const auto &engine : pipeline.engines()) text += explain_engine(pipeline, *engine);
    return text;
}

void warn_of_fallbacks(const Device &device, const std::vector<const PlannedOp *> &ops) {
    for (const ExplainRow &row : explain_rows(ops)) {
        if (row.rung == "native") continue;
        log().warn("backend {} does not run {} itself ({}); {} ops of this kind run as {}: {}; "
                   "`strict: true` makes this an error",
                   device.plugin(), row.op, row.reason, row.count, row.rung, row.kernel);
    }
}

} // namespace keel
