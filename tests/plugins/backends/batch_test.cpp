// Tests of several sequences at once on each GPU backend. Each must give the same text as alone.
// Steps with rows of several sequences use keel.batched_decode/1, unless a policy collects data
// from each step.
#include "support/gpu_backends.hpp"
#include "support/texts_at_once.hpp"

using namespace keel;
using namespace keel::test;

namespace {

std::unique_ptr<Pipeline> make(const std::string &backend, const std::string &kv,
                               const std::string &policy, uint32_t batch) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "model.context=256",
                                     "kv.dtype=" + kv,
                                     "policy.plugin=" + policy,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"};
    if (policy != "none") sets.emplace_back("policy.budget.tokens=16");
    if (policy == "snapkv") sets.emplace_back("policy.params.window=8");
    PipelineOptions options;
    options.batch = batch;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

} // namespace

TEMPLATE_TEST_CASE("texts generated together on a GPU backend are the same as alone", "", opencl,
                   vulkan) {
    const std::string backend = here<TestType>();
    struct Cell {
        const char *kv, *policy;
        uint32_t batch;
    };
    const Cell cells[] = {{"f32", "none", 3},  {"f16", "none", 6},   {"q8_0", "sliding_window", 3},
                          {"q4_0", "none", 2}, {"f16", "snapkv", 3}, {"f16", "sliding_window", 5}};
    for (const Cell &cell : cells) {
        INFO(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.batch
                     << " at once");
        const auto pipeline = make(backend, cell.kv, cell.policy, cell.batch);
        CHECK(pipeline->graph().attends_together());
        const std::vector<Wish> all = wishes(*pipeline->tokenizer(), cell.batch + 1, 8);
        check_same_texts(*pipeline, all, texts_alone(*pipeline, all), texts_at_once(*pipeline, all),
                         cell.kv);
    }
}

TEMPLATE_TEST_CASE(
    "a step of several sequences on a GPU backend queues as many ops as one of a single sequence",
    "", opencl, vulkan) {
    const auto pipeline = make(here<TestType>(), "f16", "none", 4);
    SessionBatch batch(*pipeline);
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session *> sessions;
    for (int i = 0; i < 4; ++i) {
        owned.push_back(batch.make_session());
        owned.back()->prefill(std::vector<int32_t>(static_cast<size_t>(5 + 3 * i), 7));
        sessions.push_back(owned.back().get());
    }
    const std::vector<int32_t> ids(4, 9);
    batch.decode(sessions, ids, SessionBatch::Read::greedy);
    const auto one_step = [&](size_t n) {
        const Stream::Counters before = pipeline->engines().counters();
        batch.decode(std::span(sessions).first(n), std::span(ids).first(n),
                     SessionBatch::Read::greedy);
        const Stream::Counters after = pipeline->engines().counters();
        CHECK(after.waits - before.waits == 1);
        return after.ops - before.ops;
    };
    CHECK(one_step(4) == one_step(1));
}
