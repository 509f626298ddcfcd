// What `--explain` prints.
#include "run/pipeline.hpp"

#include "base/display.hpp"
#include "ops/explain.hpp"

namespace keel {

using pipeline::HybridMode;

namespace {

// How decode steps reach the device.
std::string replay_text(const Engine &engine) {
    const std::string why = engine.graph->why_not_recorded();
    if (!why.empty()) return "op by op: " + why;
    const std::string &words = engine.executor->recording_words();
    return fmt::format("recorded once and submitted again{}",
                       words.empty() ? "" : " (" + words + ")");
}

// Whether greedy text waits for each token before the next step is queued.
std::string ahead_text(const Engine &engine) {
    const std::string why = engine.executor->why_not_ahead();
    if (!why.empty()) return "after each token is read: " + why;
    return engine.graph->can_run_ahead()
               ? "before the token is read, where nothing is decided in between"
               : "after each token is read: not all of a step runs there";
}

} // namespace

std::string Pipeline::explain_engine(const Engine &engine) const {
    const Device &device = engine.device();
    const Graph &graph = *engine.graph;
    const KvShape &kv = engine.kv_shape;
    const bool is_hybrid = config_.hybrid.is_given();
    const std::string prefill_title =
        fmt::format("prefill, up to {} tokens a step", graph.max_tokens());
    std::string conversions;
    if (&engine == engines_.front().get()) {
        for (const Conversion &conversion :
             source_->conversions(*config_.model.weights, device.info().weight_dtypes))
            conversions += "  " + conversion_text(conversion) + "\n";
    }
    return fmt::format(
               "{}backend {} on '{}': {}\nsync: {}\ndecode steps: {}\ngreedy steps are queued "
               "{}\nweights: {} ({} read per "
               "token)\n{}KV cache: keys "
               "{}, values {}, {} per token\n",
               is_hybrid ? fmt::format("== {} ==\n", engine.name) : "", device.plugin(),
               device.device_info().name, device.info().description,
               to_string(engine.executor->stream().strategy()), replay_text(engine),
               ahead_text(engine), engine.weights->dtype_name(),
               format_bytes(engine.weights->bytes_per_token(device)), conversions,
               keel_dtype_name(kv.key_dtype), keel_dtype_name(kv.value_dtype),
               format_bytes(kv.bytes_per_token())) +
           explain_table("decode, one token a step", explain_rows(graph.ops(StepForm::decode))) +
           explain_table(prefill_title, explain_rows(graph.ops(StepForm::prefill))) +
           (graph.taps().list().empty() ? std::string{}
                                        : explain_table("of these, run for the policy",
                                                        explain_rows(graph.taps().list()))) +
           (engine.cache_plan->ops().empty()
                ? std::string{}
                : explain_table("KV cache, when slots go", explain_rows(engine.cache_plan->ops())));
}

// Who does what, and what crosses between backends.
std::string Pipeline::explain_hybrid() const {
    const pipeline::HybridSection &hybrid = config_.hybrid;
    std::string text = "hybrid\n";
    if (mode() == HybridMode::taking_turns) {
        const pipeline::SwitchSection &s = hybrid.switching;
        const Engine &decode = engine(), &prefill = prefill_engine();
        text += fmt::format("  prefill: {}, decode: {}\n", prefill.name, decode.name);
        if (&prefill != &decode) {
            text += fmt::format(
                "  the cache crosses at the end of each prompt, and back before the next: {} per "
                "token of it\n",
                format_bytes(decode.kv_shape.bytes_per_token()));
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
        for (const auto &engine : engines_)
            text += fmt::format("  layers {} to {}: {}\n", engine->part.first, engine->part.end - 1,
                                engine->name);
        text += fmt::format(
            "  bytes that cross per token: {} (the residual stream, out of one backend and into "
            "the next, at {} border(s))\n",
            crossing_bytes_per_token(), engines_.size() - 1);
    }
    return text;
}

uint64_t Pipeline::crossing_bytes_per_token() const {
    if (mode() != HybridMode::by_layers) return 0;
    const auto residual = sizeof(float) * static_cast<uint64_t>(model().hidden_size);
    return 2 * residual * (engines_.size() - 1); // read on one side, written on the other
}

std::string Pipeline::explain() const {
    if (!config_.hybrid.is_given()) return explain_engine(engine());
    std::string text = explain_hybrid();
    for (const auto &engine : engines_)
        text += explain_engine(*engine);
    return text;
}

} // namespace keel
