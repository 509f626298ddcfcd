// Tests of steps that are recorded once and submitted again, on a backend that supports this. The
// results and the counters must be the same, and an outdated recording must not be submitted.
#include "support/mini_pipeline.hpp"

#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

using Kind = SyncStrategy::Kind;

Executor::Options options(SyncStrategy sync = {Kind::lazy, 0}, bool replay = true) {
    Executor::Options o;
    o.strict = true;
    o.sync = sync;
    o.replay = replay;
    return o;
}

constexpr uint64_t step_ops = 2 * 9 + 3; // argmax is requested separately

struct Recorded {
    explicit Recorded(WrappingBackend &backend, const Executor::Options &o = options())
        : w(backend) {
        w.records_steps = true;
        w.asynchronous = true;
        pipeline = std::make_unique<MiniPipeline>(w.open(), o);
    }
    uint64_t recorded() const { return w.count("replay_end"); }
    uint64_t submitted() const { return w.count("replay_submit"); }
    Stream::Counters counters() const { return pipeline->executor.stream().counters(); }

    WrappingBackend &w;
    std::unique_ptr<MiniPipeline> pipeline;
};

} // namespace

TEST_CASE("a decode step is recorded once and submitted again, with the same results") {
    WrappingBackend w;
    {
        Recorded r(w);
        CHECK(r.pipeline->generate() == expected_tokens());
        CHECK(r.pipeline->logits() == expected_logits());
        CHECK(r.recorded() == 1); // four blocks of slots have the same bound of the lengths
        CHECK(r.submitted() == 5);
        CHECK(r.counters().replays == 4);
        w.clear_calls();
        const Stream::Counters before = r.counters();
        r.pipeline->step(3);
        const Stream::Counters after = r.counters();
        CHECK(w.ops() == 1); // only argmax
        CHECK(after.ops - before.ops == step_ops + 1);
        CHECK(after.waits - before.waits == 1);
        CHECK(after.submits - before.submits == 1);
        CHECK(after.replays - before.replays == 1);
        CHECK(w.live().recordings == 1);
        CHECK(r.pipeline->executor.can_record());
        CHECK(r.pipeline->executor.recording_words() == "kept calls");
        CHECK(r.pipeline->executor.why_not_recorded(step_ops).empty());
    }
    CHECK(w.live().none());
    CHECK(w.misuses() == 0);
}

TEST_CASE("recording can be switched off, and strategies that split a step do not record") {
    const struct {
        SyncStrategy sync;
        bool on;
        uint64_t recorded;
        const char *why;
    } cases[] = {
        {{Kind::lazy, 0}, true, 1, ""},
        {{Kind::lazy, 0}, false, 0, "sync.replay: off"},
        {{Kind::eager, 0}, true, 0, "eager waits after every op"},
        {{Kind::batched, 4}, true, 0, "batched: 4 submits within a step of 21 ops and its argmax"},
        {{Kind::batched, 21}, true, 0, "submits within a step"},
        {{Kind::batched, 22}, true, 1, ""}};
    for (const auto &c : cases) {
        WrappingBackend w;
        Recorded r(w, options(c.sync, c.on));
        INFO(to_string(c.sync) << (c.on ? "" : ", off"));
        CHECK(r.pipeline->generate() == expected_tokens());
        CHECK(r.pipeline->logits() == expected_logits());
        CHECK(r.recorded() == c.recorded);
        const std::string why = r.pipeline->executor.why_not_recorded(step_ops);
        CHECK(why.find(c.why) != std::string::npos);
        CHECK(why.empty() == (c.recorded > 0));
        CHECK(w.misuses() == 0);
    }
}

TEST_CASE("without the extension a backend works as before, and the reason is reported") {
    WrappingBackend w;
    MiniPipeline p(w.open(), options());
    CHECK(p.generate() == expected_tokens());
    CHECK_FALSE(p.executor.can_record());
    CHECK(p.executor.why_not_recorded(1) == "backend wrapping has no keel.replay/1");
    CHECK(p.executor.stream().counters().replays == 0);
}

TEST_CASE("a compacted, truncated or cleared cache is never read with an old recording") {
    WrappingBackend w, plain;
    {
        Recorded r(w);
        MiniPipeline other(plain.open(), options());
        const auto both = [&](auto &&change) {
            change(*r.pipeline);
            change(other);
            for (const int32_t id : {5, 17, 60}) {
                CHECK(r.pipeline->step(id) == other.step(id));
                CHECK(r.pipeline->logits() == other.logits());
            }
        };
        both([](MiniPipeline &p) { p.generate(3); });
        both([](MiniPipeline &p) { p.cache.truncate(2); });
        both([](MiniPipeline &p) {
            static_cast<void>(p.cache.length(0, 0));
            p.generate(4);
        });
    }
    CHECK(w.misuses() == 0);
    CHECK(w.live().none());
}

TEST_CASE("a step is recorded again when its cache moves to other memory") {
    WrappingBackend w;
    w.hide("buffer_commit"); // now arenas grow by copying to a larger buffer
    {
        Recorded r(w);
        MiniPipeline &p = *r.pipeline;
        WrappingBackend plain;
        MiniPipeline other(plain.open(), options());
        p.prefill();
        other.prefill();
        for (int32_t i = 0; i < 26; ++i) { // up to the last slot
            INFO(i);
            CHECK(p.step(i) == other.step(i));
        }
        CHECK(p.logits() == other.logits());
        CHECK(r.recorded() > 1);
        CHECK(r.counters().replays + r.recorded() == 26);
    }
    CHECK(w.misuses() == 0);
    CHECK(w.live().none());
}

TEST_CASE("sequences that take turns have their own recordings") {
    WrappingBackend w, plain;
    {
        Recorded r(w);
        MiniPipeline &p = *r.pipeline;
        MiniPipeline other(plain.open(), options());
        KvCache second(p.executor, p.shape, p.executor.placement()),
            theirs(other.executor, other.shape, other.executor.placement());
        p.prefill();
        other.prefill();
        const auto step_of_second = [](MiniPipeline &m, KvCache &cache, int32_t at) {
            const std::vector<int32_t> position = {at};
            cache.append(position, 1);
            const int32_t id = at + 3;
            m.graph.forward(
                {.positions = position, .kv = cache.views(), .ids = {&id, 1}, .logit_rows = 1});
            m.graph.next().queue_argmax();
            return m.graph.next().ids().read<int32_t>().front();
        };
        for (int32_t i = 0; i < 6; ++i) {
            CHECK(p.step(i) == other.step(i));
            CHECK(step_of_second(p, second, i) == step_of_second(other, theirs, i));
        }
        CHECK(r.recorded() == 2);
        CHECK(r.counters().replays == 10);
    }
    CHECK(w.misuses() == 0);
}

TEST_CASE("a step that does not repeat is soon no longer recorded") {
    WrappingBackend w;
    Recorded r(w);
    MiniPipeline &p = *r.pipeline;
    p.prefill();
    WrappingBackend plain;
    MiniPipeline other(plain.open(), options());
    other.prefill();
    // Each step uses another cache, so it has other buffers.
    std::vector<std::unique_ptr<KvCache>> caches;
    for (int32_t i = 0; i < 40; ++i) {
        caches.push_back(std::make_unique<KvCache>(p.executor, p.shape, p.executor.placement()));
        const std::vector<int32_t> position = {0};
        caches.back()->append(position, 1);
        p.graph.forward(
            {.positions = position, .kv = caches.back()->views(), .ids = {&i, 1}, .logit_rows = 1});
        KvCache theirs(other.executor, other.shape, other.executor.placement());
        theirs.append(position, 1);
        other.graph.forward(
            {.positions = position, .kv = theirs.views(), .ids = {&i, 1}, .logit_rows = 1});
        CHECK(p.logits() == other.logits());
    }
    CHECK(r.recorded() >= 4);
    CHECK(r.recorded() <= 8);
    CHECK(r.counters().replays == 0);
    CHECK(w.live().recordings <= 4);
    caches.clear();
    CHECK(w.misuses() == 0);
}

TEST_CASE("reads and writes during a step are right, and the step is not recorded") {
    WrappingBackend w;
    w.records_steps = true;
    w.asynchronous = true;
    const auto device = w.open();
    Executor executor(device, options());
    const Tensor x = Tensor::allocate(*device, KEEL_DTYPE_F32, {4}),
                 one = Tensor::allocate(*device, KEEL_DTYPE_F32, {4});
    one.write(std::vector<float>(4, 1.0F).data());
    keel_elementwise_args args = {KEEL_HEADER(keel_elementwise_args)};
    args.a = args.out = x.c();
    args.b = one.c();
    const OpHandle add = executor.plan(KEEL_OP_ADD, args, {});
    for (const bool warm : {false, true}) {
        for (const char *what : {"read", "write", "flush", "wait"}) {
            INFO(what << (warm ? ", comparing" : ", recording"));
            x.write(std::vector<float>(4, 0.0F).data());
            if (warm) { // a recording of steps for two sequences exists
                for (int i = 0; i < 2; ++i) {
                    Executor::Step step(executor, 2);
                    executor.run(*add, args);
                    executor.run(*add, args);
                    step.end();
                }
            }
            x.write(std::vector<float>(4, 0.0F).data());
            Executor::Step step(executor, 2);
            executor.run(*add, args);
            const std::string_view word = what;
            if (word == "read") CHECK(x.read<float>() == std::vector<float>(4, 1.0F));
            if (word == "write") x.write(std::vector<float>(4, 5.0F).data());
            if (word == "flush") executor.stream().flush();
            if (word == "wait") executor.stream().wait();
            executor.run(*add, args);
            step.end();
            CHECK(x.read<float>() == std::vector<float>(4, word == "write" ? 6.0F : 2.0F));
        }
    }
    CHECK(w.misuses() == 0);
}

TEST_CASE(
    "if any call fails while a step is recorded, the step runs normally or its error is reported") {
    for (const char *slot : {"replay_begin", "replay_end", "matmul", "attention"}) {
        for (const keel_status status :
             {KEEL_E_UNSUPPORTED, KEEL_E_OUT_OF_MEMORY, KEEL_E_INTERNAL}) {
            INFO(slot << ", status " << status);
            WrappingBackend w;
            {
                Recorded r(w);
                r.pipeline->prefill();
                WrappingBackend plain;
                MiniPipeline other(plain.open(), options());
                other.prefill();
                w.fail_nth(1, status, slot);
                for (int32_t i = 0; i < 4; ++i) CHECK(r.pipeline->step(i) == other.step(i));
                CHECK(w.fault_fired());
                CHECK(r.pipeline->logits() == other.logits());
                CHECK(r.counters().replays >= 2);
            }
            CHECK(w.misuses() == 0);
            CHECK(w.live().none());
        }
    }
    WrappingBackend w;
    Recorded r(w);
    r.pipeline->prefill();
    r.pipeline->step(1);
    w.fail_nth(1, KEEL_E_INTERNAL, "replay_submit");
    const std::string message = error_text([&] { r.pipeline->step(2); }, ErrorKind::runtime);
    CHECK(message.find("backend wrapping: submitting a recorded step") != std::string::npos);
    CHECK(message.find("injected into replay_submit") != std::string::npos);
}

TEST_CASE("a device that is lost while a step is recorded or submitted gets only destroy calls") {
    for (const char *slot : {"replay_begin", "replay_end", "replay_submit", "matmul"}) {
        INFO(slot);
        WrappingBackend w;
        {
            Recorded r(w);
            r.pipeline->prefill();
            w.fail_nth(1, KEEL_E_DEVICE_LOST, slot);
            CHECK_THROWS_AS(r.pipeline->step(1), Error);
            CHECK(r.pipeline->executor.device().is_lost());
        }
        CHECK(w.live().none());
    }
}
