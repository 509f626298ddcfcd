#include "support/mini_pipeline.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <set>

using namespace keel;
using namespace keel::test;

namespace {

using Kind = SyncStrategy::Kind;

// A device with `n` floats in a buffer and a planned op that adds 1 to each of them.
struct Counting {
    explicit Counting(WrappingBackend &w, SyncStrategy sync)
        : device(w.open()), executor(device, {false, nullptr, sync}),
          x(Tensor::allocate(*device, KEEL_DTYPE_F32, {4})),
          one(Tensor::allocate(*device, KEEL_DTYPE_F32, {4})) {
        const std::vector<float> ones(4, 1.0F), zeros(4, 0.0F);
        one.write(ones.data());
        x.write(zeros.data());
        args.a = args.out = x.c();
        args.b = one.c();
        add = executor.plan(KEEL_OP_ADD, args, {});
        w.clear_calls();
    }
    void run(int times) {
        for (int i = 0; i < times; ++i) executor.run(*add, args);
    }

    std::shared_ptr<Device> device;
    Executor executor;
    Tensor x, one;
    keel_elementwise_args args = {KEEL_HEADER(keel_elementwise_args)};
    OpHandle add;
};

} // namespace

TEST_CASE("eager submits and waits after every op") {
    WrappingBackend w;
    w.asynchronous = true;
    Counting c(w, {Kind::eager, 0});
    c.run(3);
    CHECK(w.count("add") == 3);
    CHECK(w.count("flush") == 3);
    CHECK(w.count("wait") == 3);
    REQUIRE(w.calls().size() == 9);
    CHECK(w.calls()[0].slot == "add");
    CHECK(w.calls()[1].slot == "flush");
    CHECK(w.calls()[2].slot == "wait");
    CHECK(w.calls()[1].ticket == w.calls()[2].ticket);
    const Stream::Counters n = c.executor.stream().counters();
    CHECK(n.ops == 3);
    CHECK(n.submits == 3);
    CHECK(n.waits == 3);
    c.executor.stream().end_of_step();
    c.executor.stream().wait();
    CHECK(w.calls().size() == 9); // there is nothing left to submit or to wait for
    CHECK(c.x.read<float>() == std::vector<float>(4, 3.0F));
}

TEST_CASE("batched submits every N ops, the rest at the end of the step, and never waits") {
    WrappingBackend w;
    w.asynchronous = true;
    Counting c(w, {Kind::batched, 4});
    c.run(10);
    CHECK(w.count("flush") == 2);
    CHECK(c.executor.stream().pending());
    c.executor.stream().end_of_step();
    CHECK(w.count("flush") == 3);
    CHECK(w.count("wait") == 0);
    CHECK_FALSE(c.executor.stream().pending());
    c.executor.stream().end_of_step(); // nothing was queued since then, so there is no call
    CHECK(w.count("flush") == 3);
    CHECK(c.x.read<float>() == std::vector<float>(4, 10.0F));
    CHECK(SyncStrategy{Kind::batched}.ops == 50);
}

TEST_CASE("lazy submits once at the end of a step and waits only for a read") {
    WrappingBackend w;
    w.asynchronous = true;
    Counting c(w, {Kind::lazy, 0});
    c.run(120);
    CHECK(w.count("flush") == 0);
    c.executor.stream().end_of_step();
    CHECK(w.count("flush") == 1);
    CHECK(w.count("wait") == 0);
    c.executor.stream().wait(); // the work is already submitted, so it is not submitted again
    CHECK(w.count("flush") == 1);
    CHECK(w.count("wait") == 1);
    c.executor.stream().wait();
    CHECK(w.count("wait") == 1);
    CHECK(c.x.read<float>() == std::vector<float>(4, 120.0F));
}

TEST_CASE("a write without an op is submitted before a wait, but not at the end of a step") {
    WrappingBackend w;
    w.asynchronous = true;
    Counting c(w, {Kind::lazy, 0});
    c.executor.stream().wait(); // waits for the writes of the set-up
    w.clear_calls();
    const std::vector<float> sevens(4, 7.0F);
    c.x.write(sevens.data());
    c.executor.stream().end_of_step();
    CHECK(w.count("flush") == 0);
    c.executor.stream().wait();
    CHECK(w.count("flush") == 1);
    CHECK(w.count("wait") == 1);
    c.run(1);
    c.executor.stream().flush();
    c.x.write(sevens.data()); // a write after a submission must be submitted too
    const uint64_t ticket = c.executor.stream().flush();
    CHECK(w.count("flush") == 3);
    CHECK(c.executor.stream().flush() == ticket);
    CHECK(w.count("flush") == 3);
    CHECK(c.x.read<float>() == sevens);
}

TEST_CASE("a deferred read does not wait for work that was queued after it") {
    WrappingBackend w;
    w.asynchronous = w.reads_later = true;
    {
        Counting c(w, {Kind::lazy, 0});
        Stream &stream = c.executor.stream();
        CHECK(stream.reads_later());
        const Stream::Counters before = stream.counters();
        const auto start = [&] { return stream.start_read(c.x.buffer()->handle(), 0, 4); };
        c.run(1);
        LaterRead one = start();
        REQUIRE(one);
        stream.flush();
        c.run(2);
        LaterRead three = start();
        stream.flush();
        c.run(4);
        float value = 0;
        one.finish(&value);
        CHECK(value == 1);
        CHECK_FALSE(one);
        CHECK(w.count("buffer_read") + w.count("wait") == 0);
        three.finish(&value);
        CHECK(value == 3);
        Stream::Counters n = stream.counters() - before;
        CHECK(n.submits == 2);
        CHECK(n.waits == 2);
        CHECK(n.reads == 2);
        CHECK(n.read_bytes == 8);
        // If a read was not submitted yet, finish() submits it. If the stream has waited for all
        // work since then, finish() does not wait again.
        LaterRead seven = start();
        seven.finish(&value);
        CHECK(value == 7);
        CHECK((stream.counters() - before).submits == 3);
        c.run(1);
        LaterRead eight = start();
        stream.wait();
        n = stream.counters();
        eight.finish(&value);
        CHECK(value == 8);
        CHECK((stream.counters() - n).waits == 0);
        CHECK((stream.counters() - n).submits == 0);
        // Further cases: a read that is given up, a read that is moved, too many reads, and a
        // strategy that waits in any case.
        { const LaterRead nobody = start(); }
        CHECK(w.live().reads == 0);
        std::vector<LaterRead> many;
        for (int i = 0; i < KEEL_READ_LATER_MOST; ++i) many.push_back(start());
        CHECK_FALSE(start());
        many.clear();
        stream.set_strategy({Kind::eager, 0});
        CHECK_FALSE(stream.reads_later());
        CHECK_FALSE(start());
    }
    CHECK(w.live().none());
    WrappingBackend without;
    Counting c(without, {Kind::lazy, 0});
    CHECK_FALSE(c.executor.stream().start_read(c.x.buffer()->handle(), 0, 4));
}

TEST_CASE("submissions and waits that a backend makes itself are counted too") {
    WrappingBackend w;
    w.asynchronous = w.tells_counts = w.reads_later = true;
    Counting c(w, {Kind::lazy, 0});
    Stream &stream = c.executor.stream();
    stream.wait();
    const Stream::Counters before = stream.counters();
    c.run(3);
    w.own_submits += 2;
    w.own_waits += 1;
    stream.flush();
    Stream::Counters n = stream.counters() - before;
    CHECK(n.ops == 3);
    CHECK(n.submits == 3);
    CHECK(n.waits == 1);
    stream.wait();
    w.own_submits += 4;
    CHECK(c.x.read<float>() == std::vector<float>(4, 3.0F));
    n = stream.counters() - before;
    CHECK(n.submits == 7);
    CHECK(n.waits == 2);
    Stream::Counters sum = before;
    sum += n;
    CHECK(sum.submits == stream.counters().submits);
    CHECK(sum.replays == stream.counters().replays);
}

TEST_CASE("the sync strategy auto is the one that the backend's context requests") {
    const auto resolved = [](keel_sync sync, uint32_t ops) {
        WrappingBackend w;
        w.sync = sync;
        w.sync_ops = ops;
        Executor executor(w.open(), {});
        return to_string(executor.stream().strategy());
    };
    CHECK(resolved(KEEL_SYNC_LAZY, 0) == "lazy");
    CHECK(resolved(KEEL_SYNC_EAGER, 0) == "eager");
    CHECK(resolved(KEEL_SYNC_BATCHED, 12) == "batched: 12");
    CHECK(resolved(KEEL_SYNC_BATCHED, 0) == "batched: 50");
    CHECK(resolved(77, 0) == "lazy");
    WrappingBackend without;
    without.hide("ctx_info");
    Executor executor(without.open(), {});
    CHECK(to_string(executor.stream().strategy()) == "lazy");
}

TEST_CASE("every strategy gives the same tokens on an asynchronous device") {
    REQUIRE(std::set<int32_t>(expected_tokens().begin(), expected_tokens().end()).size() >= 3);
    for (const SyncStrategy sync :
         {SyncStrategy{Kind::eager, 0}, SyncStrategy{Kind::batched, 1},
          SyncStrategy{Kind::batched, 7}, SyncStrategy{Kind::lazy, 0}, SyncStrategy{}}) {
        INFO(to_string(sync));
        WrappingBackend w;
        w.asynchronous = true;
        {
            MiniPipeline p(w.open(), {true, nullptr, sync});
            CHECK(p.generate() == expected_tokens());
            CHECK(p.logits() == expected_logits());
        }
        CHECK(w.live().none());
    }
}

TEST_CASE("a decode step under lazy submits once and waits once, for the token") {
    WrappingBackend w;
    w.asynchronous = true;
    MiniPipeline p(w.open(), {true, nullptr, {Kind::lazy, 0}});
    const std::vector<int32_t> tokens = p.generate(2);
    const Stream::Counters before = p.executor.stream().counters();
    w.clear_calls();
    p.step(tokens.back());
    const Stream::Counters after = p.executor.stream().counters();
    CHECK(after.waits - before.waits == 1);
    CHECK(after.reads - before.reads == 1);
    CHECK(after.read_bytes - before.read_bytes == 4);
    CHECK(after.ops - before.ops == w.ops());
    CHECK(after.submits - before.submits == 1); // the submission of the read itself
    CHECK(w.count("flush") == 0);
    CHECK(w.count("wait") == 0);
    CHECK(w.count("buffer_read") == 1);
    CHECK(w.calls().back().slot == "buffer_read");
    CHECK(after.writes - before.writes == w.count("buffer_write"));
    CHECK(w.count("buffer_create") == 0); // a step allocates nothing
}

TEST_CASE("a decode step under eager waits once for each op") {
    WrappingBackend w;
    MiniPipeline p(w.open(), {true, nullptr, {Kind::eager, 0}});
    p.generate(1);
    w.clear_calls();
    p.step(1);
    CHECK(w.ops() == 2 * 9 + 4);
    CHECK(w.count("flush") == w.ops());
    CHECK(w.count("wait") == w.ops());
}
