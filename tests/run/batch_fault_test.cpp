// Tests of several sequences at once in which one sequence fails, or the device of all sequences.
#include "failing_cpu.hpp"
#include "hybrid_rig.hpp"

#include "run/session_batch.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Kind = SessionBatch::Outcome::Kind;

namespace {

// Three sequences with prompts, in a pipeline on the failing backend.
struct Three {
    explicit Three(const std::vector<std::string> &sets, const std::vector<int32_t> &prompt) {
        PipelineOptions options = with(cpu, "cpu");
        options.batch = 3;
        pipeline = std::make_unique<Pipeline>(one_cpu(sets), options);
        batch = std::make_unique<SessionBatch>(*pipeline);
        for (int i = 0; i < 3; ++i) {
            owned.push_back(batch->make_session());
            sessions.push_back(owned.back().get());
            sessions.back()->prefill(prompt);
        }
    }
    std::span<const SessionBatch::Outcome> step() {
        return batch->decode(sessions, std::vector<int32_t>(sessions.size(), 7),
                             SessionBatch::Read::greedy);
    }
    FailingCpu cpu;
    std::unique_ptr<Pipeline> pipeline;
    std::unique_ptr<SessionBatch> batch;
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session *> sessions;
};

} // namespace

TEST_CASE("a device that is lost in a step ends all its sequences, wherever the error appears") {
    for (const char *slot : {"matmul", "attention", "argmax_rows", "buffer_write"}) {
        INFO(slot);
        Three three({}, {5, 6, 8});
        three.cpu.backend.fail_nth(1, KEEL_E_DEVICE_LOST, slot);
        CHECK_THROWS_WITH(three.step(), Catch::Contains("lost"));
        REQUIRE(three.cpu.backend.fault_fired());
        for (const Session *session : three.sessions) CHECK(session->is_broken());
        CHECK_THROWS_WITH(three.step(), Catch::Contains("is broken"));
    }
}

TEST_CASE("a sequence whose eviction fails cannot be used, and the others continue") {
    const std::vector<std::string> sets{"policy.plugin=sliding_window", "policy.budget.tokens=8",
                                        "policy.trigger.on=[budget]"};
    Three three(sets, {5, 6, 8, 9, 10, 11});
    size_t failed = 0;
    for (int i = 0; i < 12 && failed == 0; ++i) {
        three.cpu.backend.fail_nth(1, KEEL_E_INTERNAL, "kv_gather");
        const auto outcomes = three.step();
        for (size_t s = 0; s < outcomes.size(); ++s) {
            if (outcomes[s].kind == Kind::done) {
                CHECK_FALSE(three.sessions[s]->is_broken());
                continue;
            }
            ++failed;
            CHECK(outcomes[s].kind == Kind::failed);
            CHECK(outcomes[s].error().kind() == ErrorKind::runtime);
            CHECK(three.sessions[s]->is_broken());
        }
        three.cpu.backend.clear_fault();
    }
    REQUIRE(failed == 1);
    std::erase_if(three.sessions, [](const Session *session) { return session->is_broken(); });
    for (int i = 0; i < 4; ++i) {
        for (const SessionBatch::Outcome &outcome : three.step()) CHECK(outcome.kind == Kind::done);
    }
}

TEST_CASE("an outcome has the error that the sequence would have alone") {
    const SessionBatch::Outcome full{Kind::full, "no room"}, failed{Kind::failed, "not finite"};
    CHECK(full.error().kind() == ErrorKind::resource);
    CHECK(std::string(full.error().what()) == "no room");
    CHECK(failed.error().kind() == ErrorKind::runtime);
}
