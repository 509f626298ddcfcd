// Code that the tests of steps ahead (sync.ahead) share. Steps ahead are queued before their token
// is read.
#pragma once

#include "failing_cpu.hpp"
#include "hybrid_rig.hpp"

#include <catch2/catch.hpp>

#include <functional>

namespace keel::test {

inline pipeline::PipelineConfig config_of(std::vector<std::string> more) {
    return one_cpu(std::move(more));
}

// The cpu backend, wrapped so that it runs asynchronously.
struct Beside {
    Beside() {
        cpu.backend.asynchronous = true;
        cpu.backend.reads_later = true;
        cpu.backend.records_steps = true;
    }
    PipelineOptions options(uint32_t sequences = 1) {
        PipelineOptions o = with(cpu, "cpu");
        o.sequences = sequences;
        return o;
    }
    FailingCpu cpu;
};

class Bytes final : public StateWriter {
  public:
    void write(const void *data, size_t n) override {
        const auto *bytes = static_cast<const unsigned char *>(data);
        all.insert(all.end(), bytes, bytes + n);
    }
    std::vector<unsigned char> all;
};

// Returns the saved state of a session, without the times of its evictions.
inline std::vector<unsigned char> saved(Session &session) {
    Bytes out;
    session.save_state(out);
    const size_t times =
        8 + 4 * static_cast<size_t>(session.tokens()) + 4 + 7 * 8; // times in microseconds
    REQUIRE(out.all.size() > times + 8);
    std::fill_n(out.all.begin() + static_cast<std::ptrdiff_t>(times), 8, uint8_t{0});
    return out.all;
}

// The complete results of a text, of a second text that continues it, and the final state.
struct Story {
    GenerateResult first, second;
    std::vector<unsigned char> between, after;
    std::vector<float> logits; // logits after the first text
    int64_t tokens = 0;
    std::optional<int32_t> pending;
};

using Change = std::function<void(GenerateOptions &, Pipeline &)>;

inline Story tell(const std::vector<std::string> &sets, const Change &change = {},
                  int64_t tokens = 40) {
    Beside device;
    Story story;
    {
        Pipeline pipeline(config_of(sets), device.options(2));
        Session session(pipeline);
        GenerateOptions options = generate_options(pipeline.config());
        options.max_tokens = tokens;
        options.ignore_end = true;
        if (change) change(options, pipeline);
        story.first = generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
        pipeline.host().clear_cancel();
        story.tokens = session.tokens();
        story.pending = session.pending();
        story.between = saved(session);
        if (session.can_take(1)) {
            const std::unique_ptr<Session> fork = session.fork();
            story.logits.assign(fork->logits().begin(), fork->logits().end());
        }
        GenerateOptions plain = generate_options(pipeline.config());
        plain.max_tokens = 9;
        plain.ignore_end = true;
        if (session.can_take(12)) {
            story.second = generate(session, pipeline.tokenizer()->encode(" And so"), plain);
            story.after = saved(session);
        }
    }
    CHECK(device.cpu.backend.live().none());
    CHECK(device.cpu.backend.misuses() == 0);
    return story;
}

inline void check_same(const Story &ahead, const Story &plain) {
    for (const auto &[a, b] :
         {std::pair(&ahead.first, &plain.first), std::pair(&ahead.second, &plain.second)}) {
        CHECK(a->text == b->text);
        CHECK(a->ids == b->ids);
        CHECK(a->reason == b->reason);
        CHECK(a->detail == b->detail);
        CHECK(a->stats.prefill_tokens == b->stats.prefill_tokens);
        CHECK(a->stats.decode_tokens == b->stats.decode_tokens);
        CHECK(a->stats.evictions == b->stats.evictions);
        CHECK(a->stats.evicted_tokens == b->stats.evicted_tokens);
        CHECK(a->stats.evicted_bytes == b->stats.evicted_bytes);
        CHECK(a->stats.kv_bytes == b->stats.kv_bytes);
        CHECK(a->stats.kv_peak_bytes == b->stats.kv_peak_bytes);
    }
    CHECK(ahead.tokens == plain.tokens);
    CHECK(ahead.pending == plain.pending);
    CHECK(ahead.logits == plain.logits);
    CHECK((ahead.between == plain.between));
    CHECK((ahead.after == plain.after));
    CHECK(plain.first.stats.ahead_steps == 0);
    CHECK(plain.first.stats.discarded_steps == 0);
}

inline Story off(std::vector<std::string> sets, const Change &change = {}, int64_t tokens = 40) {
    sets.push_back("sync.ahead=off");
    return tell(sets, change, tokens);
}

} // namespace keel::test
