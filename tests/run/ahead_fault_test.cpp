// Tests of greedy steps that are queued before their token is read (sync.ahead), when an error
// occurs or another call comes between.
#include "ahead_rig.hpp"
#include "base/error.hpp"
#include "platform/system_monitor.hpp"

#include <chrono>
#include <thread>
#include <tuple>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Two sequences that take the same tokens. One uses steps ahead, the other waits for each token.
struct Pair {
    Pair(Session &a, Session &b) : ahead(a), plain(b) {}
    void go_on(bool go_ahead = true) {
        const int32_t id = ahead.greedy(go_ahead), other = plain.greedy();
        CHECK(id == other);
        ahead.decode(id);
        plain.decode(other);
    }
    // Checks that both sequences have the same length and that their next logits are bitwise equal,
    // whatever happened before.
    void check_same() {
        ahead.drop_ahead();
        CHECK(ahead.tokens() == plain.tokens());
        CHECK(ahead.cache().cache().max_length() == plain.tokens());
        const int32_t id = plain.greedy();
        CHECK(ahead.greedy() == id);
        ahead.decode(id);
        plain.decode(id);
        CHECK(ahead.cache().cache().max_length() == plain.tokens());
        CHECK(std::equal(ahead.logits().begin(), ahead.logits().end(), plain.logits().begin()));
    }
    Session &ahead, &plain;
};

// Returns the message of the error that the action throws, or "".
template <typename Action> std::string error_of(Action &&action) {
    try {
        action();
    } catch (const Error &error) {
        return error.what();
    }
    return {};
}

} // namespace

TEST_CASE("a device that is lost during a step ahead ends the text, and gets no further call") {
    const std::vector<int32_t> whole = off({}).first.ids;
    for (const char *slot : {"matmul", "attention", "argmax_rows", "embed", "flush", "buffer_write",
                             "read_later_start", "read_later_finish", "replay_submit"}) {
        for (const uint64_t nth : {3, 4, 9}) {
            INFO(slot << " " << nth);
            Beside device;
            {
                Pipeline pipeline(config_of({}), device.options());
                Session session(pipeline);
                session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
                session.set_pending(session.greedy());
                device.cpu.backend.fail_nth(nth, KEEL_E_DEVICE_LOST, slot);
                GenerateOptions options = generate_options(pipeline.config());
                options.max_tokens = 40;
                options.ignore_end = true;
                try {
                    const GenerateResult result = generate(session, {}, options);
                    const size_t n = result.ids.size();
                    CHECK(std::equal(whole.begin() + 1,
                                     whole.begin() + 1 +
                                         static_cast<std::ptrdiff_t>(std::min(n, whole.size() - 1)),
                                     result.ids.begin()));
                    CHECK((result.reason == StopReason::device_lost) ==
                          device.cpu.backend.fault_fired());
                } catch (const Error &error) { // fails before the first token
                    CHECK(device.cpu.backend.fault_fired());
                    CHECK(session.is_broken());
                }
            }
            CHECK(device.cpu.backend.calls_after_loss() == 0);
        }
    }
}

TEST_CASE("a device that is lost in a step that was not needed does not change the text") {
    const std::vector<int32_t> whole = off({}).first.ids;
    Beside device;
    {
        Pipeline pipeline(config_of({}), device.options());
        Session session(pipeline);
        GenerateOptions options = generate_options(pipeline.config());
        options.max_tokens = 40;
        options.on_text = [&, n = 0](std::string_view) mutable {
            if (++n != 5) return;
            pipeline.host().request_cancel();
            // the next call takes the step back
            device.cpu.backend.fail_nth(1, KEEL_E_DEVICE_LOST);
        };
        const GenerateResult result =
            generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
        CHECK(device.cpu.backend.fault_fired());
        CHECK(device.cpu.backend.fault_slot() == "buffer_write");
        CHECK(result.reason == StopReason::cancelled);
        CHECK(result.stats.discarded_steps == 1);
        CHECK(std::equal(result.ids.begin(), result.ids.end(), whole.begin()));
        CHECK(session.cache().cache().max_length() == session.tokens());
        pipeline.host().clear_cancel();
        CHECK_THROWS_WITH(session.decode(3), Contains("no other backend can continue"));
        CHECK(session.is_broken());
    }
    CHECK(device.cpu.backend.calls_after_loss() == 0);
}

TEST_CASE("an op that fails in a step ahead is reported by the step itself, at the same token") {
    std::string text[2];
    for (const bool ahead : {false, true}) {
        Beside device;
        device.cpu.backend.records_steps = false;
        Pipeline pipeline(config_of({std::string("sync.ahead=") + (ahead ? "auto" : "off")}),
                          device.options());
        Session session(pipeline);
        session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
        session.decode(session.greedy());
        device.cpu.backend.fail_nth(1, KEEL_E_OUT_OF_MEMORY, "attention");
        const int32_t id = session.greedy(true); // this token does not come from the failed step
        CHECK(device.cpu.backend.fault_fired() == ahead);
        const int64_t tokens = session.tokens(), length = session.cache().cache().max_length();
        CHECK(length == tokens);
        if (!ahead) CHECK_THROWS_AS(session.decode(id), Error);
        if (ahead) {
            session.decode(id); // the fault occurred only once
            CHECK(session.tokens() == tokens + 1);
            CHECK(session.stats().discarded_steps == 0);
        }
    }
}

TEST_CASE("a call that fails in a step ahead leaves the sequence unchanged") {
    Pipeline pipeline(config_of({}));
    const std::vector<int32_t> prompt = pipeline.tokenizer()->encode(hybrid_opening());
    int fired = 0;
    for (const char *slot : {"buffer_write", "flush", "matmul", "read_later_start", "argmax_rows",
                             "replay_submit", "embed"}) {
        for (const uint64_t nth : {1, 2, 3, 4}) {
            INFO(slot << " " << nth);
            Beside device;
            device.cpu.backend.records_steps = nth % 2 == 0;
            Pipeline beside(config_of({}), device.options());
            Session session(beside), plain(pipeline);
            session.prefill(prompt);
            plain.prefill(prompt);
            Pair both(session, plain);
            both.go_on(false);
            both.go_on();
            both.go_on();
            CHECK(session.stats().ahead_steps > 0);
            device.cpu.backend.fail_nth(nth, KEEL_E_OUT_OF_MEMORY, slot);
            error_of([&] { session.greedy(true); });
            fired += device.cpu.backend.fault_fired() ? 1 : 0;
            device.cpu.backend.clear_fault();
            both.check_same();
        }
    }
    CHECK(fired >= 8);
}

TEST_CASE("sequences that take turns continue with their own tokens, in any order") {
    Beside device;
    Pipeline pipeline(config_of({}), device.options(3)), waits(config_of({}));
    const std::vector<int32_t> prompt = pipeline.tokenizer()->encode(hybrid_opening());
    const std::vector<int32_t> other_prompt =
        pipeline.tokenizer()->encode("The dog was very big and he");
    SECTION("both sequences have a step ahead") {
        Session a(pipeline), b(pipeline), a_plain(waits), b_plain(waits);
        a.prefill(prompt);
        a_plain.prefill(prompt);
        b.prefill(other_prompt);
        b_plain.prefill(other_prompt);
        int32_t next_a = a.greedy(), next_b = b.greedy();
        for (int i = 0; i < 12; ++i) { // in each turn a step is decoded, then its token is read
            for (const auto &[ahead, plain, next] :
                 {std::tuple(&a, &a_plain, &next_a), std::tuple(&b, &b_plain, &next_b)}) {
                ahead->decode(*next);
                plain->decode(*next);
                *next = ahead->greedy(true);
                CHECK(*next == plain->greedy());
            }
        }
        CHECK(a.stats().ahead_steps > 6);
        a.drop_ahead();
        b.drop_ahead();
        CHECK((saved(a) == saved(a_plain)));
        CHECK((saved(b) == saved(b_plain)));
    }
    SECTION("one sequence is read in while the other has a step ahead") {
        Session session(pipeline), other(pipeline), plain(waits);
        session.prefill(prompt);
        plain.prefill(prompt);
        for (int i = 0; i < 12; ++i) {
            const int32_t id = session.greedy(true);
            CHECK(id == plain.greedy());
            if (i == 4 || i == 8) other.prefill(std::vector<int32_t>{4, 5});
            session.decode(id);
            plain.decode(id);
            // these logits belong to the step that was kept; the other step overwrote them
            if (i == 8)
                CHECK(std::equal(session.logits().begin(), session.logits().end(),
                                 plain.logits().begin()));
        }
        CHECK(session.stats().ahead_steps > 6);
        Pair(session, plain).check_same();
        CHECK((saved(session) == saved(plain)));
    }
}

TEST_CASE(
    "if a hybrid's second backend fails after the first was lost, the step ahead is taken back") {
    FailingCpu a;
    Beside b;
    PipelineOptions options;
    options.device = [&](const std::string &name) { return name == "a" ? a.open() : b.cpu.open(); };
    Pipeline pipeline(two({"hybrid.prefill=a", "hybrid.decode=a", "hybrid.switch.on=command"}),
                      options);
    Pipeline waits(config_of({}));
    Session session(pipeline), plain(waits);
    const std::vector<int32_t> prompt = waits.tokenizer()->encode(hybrid_opening());
    session.prefill(prompt);
    plain.prefill(prompt);
    Pair both(session, plain);
    a.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
    both.go_on(false);
    CHECK(session.engine().name == "b");
    for (int i = 0; i < 3; ++i) both.go_on();
    CHECK(session.stats().ahead_steps > 0);
    b.cpu.backend.fail_nth(1, KEEL_E_INTERNAL, "read_later_finish");
    CHECK_THROWS_AS(session.greedy(true), Error);
    both.check_same();
}

TEST_CASE("a step that fails after a hybrid's move does not return logits of the old cache") {
    bool moved = false;
    for (uint64_t nth = 16; nth < 28 && !moved;
         ++nth) { // the model decides which write is the first of the step
        FailingCpu b;
        Beside a;
        const auto monitor = std::make_shared<ScriptedMonitor>();
        PipelineOptions options;
        options.monitor = monitor;
        options.device = [&](const std::string &name) {
            return name == "b" ? b.open() : a.cpu.open();
        };
        Pipeline pipeline(two({"hybrid.prefill=a", "hybrid.decode=a", "hybrid.switch.on=pressure",
                               "hybrid.switch.to=b", "hybrid.switch.available_mib=64"}),
                          options);
        Pipeline waits(config_of({}));
        Session session(pipeline), plain(waits);
        const std::vector<int32_t> prompt = waits.tokenizer()->encode(hybrid_opening());
        session.prefill(prompt);
        plain.prefill(prompt);
        Pair both(session, plain);
        both.go_on();
        both.go_on();
        const int32_t id = session.greedy(true);
        CHECK(id == plain.greedy());
        monitor->available = 1 << 20;
        // the monitor is read once a second
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        b.backend.fail_nth(nth, KEEL_E_OUT_OF_MEMORY, "buffer_write");
        const std::string error = error_of([&] { session.decode(id); });
        if (error.empty() || session.engine().name != "b") continue;
        moved = true;
        CHECK(session.tokens() == plain.tokens());
        CHECK(session.cache().cache().max_length() == plain.tokens());
        // the logits are the same, or there are none
        const std::span<const float> logits = session.logits();
        CHECK((logits.empty() || std::equal(logits.begin(), logits.end(), plain.logits().begin())));
        session.decode(id);
        plain.decode(id);
        both.check_same();
    }
    CHECK(moved);
}
