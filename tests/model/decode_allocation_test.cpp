// Checks that the steps of a pipeline that has run before allocate nothing, in every architecture.
// The test counts every call of operator new in this program.

#include "run/session_batch.hpp"
#include "support/arch_miniature.hpp"
#include "support/count_allocations.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

TEST_CASE("a decode step allocates no memory, with and without the additions of an architecture") {
    std::vector<Miniature> models;
    for (const std::string name : {"llama_biases", "gemma2", "gemma3", "smollm3", "ministral3",
                                   "olmo2", "granite", "cohere2", "olmoe", "qwen2moe"})
        models.push_back(read_miniature(name));
    for (const Miniature &model : models) {
        INFO(model.name);
        const TempFolder folder;
        write_miniature(folder.path(), model);
        PipelineOptions options;
        options.need_tokenizer = false;
        const std::vector<std::string> sets{"model.path=" + folder.path().string(),
                                            "backend.plugin=cpu", "strict=true"};
        Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        Session session(pipeline);
        const std::vector<int32_t> prompt(20, 7);
        session.prefill(prompt);
        session.decode(9);
        (void)session.logits();
        uint64_t in_steps = 0;
        for (int i = 0; i < 30; ++i) { // these steps stay inside one cache block
            const uint64_t before = allocations();
            session.decode(session.greedy());
            (void)session.logits();
            in_steps += allocations() - before;
        }
        CHECK(in_steps == 0);
    }
}

TEST_CASE("a step of several sequences allocates no memory either") {
    const TempFolder folder;
    write_miniature(folder.path(), read_miniature("llama_biases"));
    PipelineOptions options;
    options.need_tokenizer = false;
    options.batch = 3;
    const std::vector<std::string> sets{"model.path=" + folder.path().string(),
                                        "backend.plugin=cpu", "strict=true"};
    Pipeline pipeline(pipeline::config_from_overrides(sets), options);
    SessionBatch batch(pipeline);
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session *> sessions;
    for (int i = 0; i < 3; ++i) {
        owned.push_back(batch.make_session());
        sessions.push_back(owned.back().get());
        sessions.back()->prefill(std::vector<int32_t>(static_cast<size_t>(18 + i), 7));
    }
    std::vector<int32_t> ids(3, 9);
    batch.decode(sessions, ids, SessionBatch::Read::logits);
    batch.decode(sessions, ids, SessionBatch::Read::greedy);
    uint64_t in_steps = 0;
    for (int i = 0; i < 30; ++i) { // these steps stay inside one cache block
        const uint64_t before = allocations();
        batch.decode(sessions, ids,
                     i % 2 == 0 ? SessionBatch::Read::logits : SessionBatch::Read::greedy);
        in_steps += allocations() - before;
        for (size_t s = 0; s < 3; ++s) ids[s] = sessions[s]->greedy();
    }
    CHECK(in_steps == 0);
}
