// Checks draft extensions, for backends that have them: recorded steps and times of ops.
#include "conformance/facts.hpp"

#include <keel/ext/draft/read_later.h>
#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>
#include <keel/ext/draft/timestamps.h>

#include <vector>

namespace keel::conformance {
namespace {

template <class Table>
bool adopt_extension(Facts &facts, const Library &library, const char *id, uint32_t required,
                     Table &table) {
    const keel_plugin &plugin = library.plugin();
    const void *theirs = plugin.get_extension == nullptr ? nullptr : plugin.get_extension(id);
    if (theirs == nullptr) return false;
    const bool fits = keel_adopt(&table, sizeof table, theirs, required) == KEEL_OK;
    facts.expect(fits,
                 fmt::format("{}: the table is too small or has another ABI major version", id));
    return fits;
}

// Runs the op x += y on n floats. Also computes the expected sum on the host.
class Sum {
  public:
    static constexpr int64_t n = 37;
    Sum(Side &side, float x, float y) : side_(side) {
        const std::vector<float> xs(n, x), ys(n, y);
        buffers_[0] = side.upload(xs.data(), 4 * n);
        buffers_[1] = side.upload(ys.data(), 4 * n);
        for (int i = 0; i < 2; ++i) {
            tensors_[i].h = KEEL_HEADER(keel_tensor);
            tensors_[i].buffer = buffers_[i];
            tensors_[i].dtype = KEEL_DTYPE_F32;
            tensors_[i].rank = 1;
            tensors_[i].shape[0] = n;
        }
    }
    ~Sum() {
        for (keel_buffer *buffer : buffers_) side_.destroy(buffer);
    }
    Sum(const Sum &) = delete;
    Sum &operator=(const Sum &) = delete;

    keel_status call() {
        keel_elementwise_args args = {};
        args.h = KEEL_HEADER(keel_elementwise_args);
        args.a = args.out = &tensors_[0];
        args.b = &tensors_[1];
        return side_.table().add(side_.ctx(), &args);
    }
    // Copies x to y. For this op, some backends pass large parameters to the kernel.
    keel_status copy() {
        keel_move_args args = {};
        args.h = KEEL_HEADER(keel_move_args);
        args.x = &tensors_[0];
        args.out = &tensors_[1];
        return side_.table().copy(side_.ctx(), &args);
    }
    keel_status write(int which, float value) {
        const std::vector<float> values(n, value);
        return side_.table().buffer_write(side_.ctx(), buffers_[which], 0, values.data(), 4 * n);
    }
    // Returns the value of x if all its elements are equal, otherwise a negative number.
    float x() {
        std::vector<float> values(n);
        if (side_.table().buffer_read(side_.ctx(), buffers_[0], 0, values.data(), 4 * n) != KEEL_OK)
            return -1;
        for (const float value : values)
            if (value != values[0]) return -2;
        return values[0];
    }
    keel_buffer *buffer() const { return buffers_[0]; } // the buffer of x
    keel_status read() {
        float value = 0;
        return side_.table().buffer_read(side_.ctx(), buffers_[0], 0, &value, 4);
    }

  private:
    Side &side_;
    keel_buffer *buffers_[2] = {};
    keel_tensor tensors_[2] = {};
};

bool has_ops(const Side &side) {
    return side.table().add != nullptr && side.table().copy != nullptr;
}

} // namespace

void check_recordings(Facts &facts, const Library &library, Side &side) {
    keel_replay replay;
    if (!adopt_extension(facts, library, KEEL_EXT_REPLAY, KEEL_PREFIX(keel_replay, destroy),
                         replay))
        return;
    if (!has_ops(side)) return;
    const uint64_t held = side.bytes_held();
    {
        Sum sum(side, 1, 2);
        keel_recording *step = nullptr;
        facts.expect(replay.begin(side.ctx()) == KEEL_OK, "replay: begin fails");
        facts.expect(sum.call() == KEEL_OK && sum.call() == KEEL_OK,
                     "replay: an op cannot be recorded");
        facts.expect(replay.begin(side.ctx()) == KEEL_E_INVALID_ARG,
                     "replay: begin during a recording must return INVALID_ARG");
        facts.expect(sum.write(1, 9) == KEEL_E_INVALID_ARG,
                     "replay: buffer_write during a recording must return INVALID_ARG");
        facts.expect(sum.read() == KEEL_E_INVALID_ARG,
                     "replay: buffer_read during a recording must return INVALID_ARG");
        uint64_t ticket = 0;
        facts.expect(side.table().flush(side.ctx(), &ticket) == KEEL_E_INVALID_ARG,
                     "replay: flush during a recording must return INVALID_ARG");
        facts.expect(replay.end(side.ctx(), &step) == KEEL_OK && step != nullptr,
                     "replay: end fails");
        facts.expect(sum.x() == 1, "replay: recorded ops run before the recording is submitted");
        facts.expect(replay.submit(side.ctx(), step) == KEEL_OK, "replay: submit fails");
        facts.expect(
            sum.x() == 5,
            "replay: the recorded ops give another result than the same ops without a recording");
        // The step is submitted between writes, which run in the order of the stream. The step is
        // submitted a second time before the first submission has run.
        sum.write(1, 10);
        replay.submit(side.ctx(), step);
        sum.write(1, 100);
        replay.submit(side.ctx(), step);
        replay.submit(side.ctx(), step);
        facts.expect(sum.call() == KEEL_OK, "replay: an op after a recording fails");
        facts.expect(sum.x() == 5 + 20 + 400 + 100,
                     "replay: a recording must read buffers when the recording runs, in the order "
                     "of the stream");
        replay.submit(side.ctx(), step);
        replay.destroy(side.ctx(), step); // the submitted step must still run
        facts.expect(sum.x() == 525 + 200,
                     "replay: a recording that was submitted and then destroyed must still run");
        // This recording is discarded.
        replay.begin(side.ctx());
        sum.call();
        facts.expect(replay.end(side.ctx(), nullptr) == KEEL_OK,
                     "replay: end without a result fails");
        facts.expect(sum.x() == 725, "replay: a discarded recording has run");
        facts.expect(replay.end(side.ctx(), &step) == KEEL_E_INVALID_ARG && step == nullptr,
                     "replay: end without begin must return INVALID_ARG");
        facts.expect(sum.call() == KEEL_OK && sum.x() == 825,
                     "replay: an op after end without begin must be queued");
        // Tests many ops of two kinds, x = x + y and y = x. Each op needs the result of the
        // previous op.
        sum.write(0, 1);
        sum.write(1, 1);
        replay.begin(side.ctx());
        for (int i = 0; i < 10; ++i) {
            sum.call();
            sum.copy();
        }
        replay.end(side.ctx(), &step);
        for (int i = 0; i < 2 && step != nullptr; ++i) replay.submit(side.ctx(), step);
        facts.expect(sum.x() == 1048576,
                     "replay: recorded ops do not see the results of earlier recorded ops");
        replay.destroy(side.ctx(), step);
        replay.destroy(side.ctx(), nullptr);
    }
    side.finish();
    facts.expect(side.bytes_held() == held,
                 "replay: mem_info.ours does not return to the earlier value after recordings");
}

void check_times(Facts &facts, const Library &library, Side &side) {
    keel_timestamps times;
    if (!adopt_extension(facts, library, KEEL_EXT_TIMESTAMPS, KEEL_PREFIX(keel_timestamps, read),
                         times))
        return;
    if (!has_ops(side)) return;
    const keel_status on = times.enable(side.ctx(), 1);
    facts.expect(on == KEEL_OK || on == KEEL_E_UNSUPPORTED, "timestamps: enable fails");
    if (on != KEEL_OK) return;
    constexpr uint32_t room = 64;
    uint64_t number[room], begin[room], end[room];
    uint32_t n = 0;
    for (int round = 0; round < 2; ++round) { // in each round the numbers of ops start at 1
        Sum sum(side, 1, 2);
        for (int i = 0; i < 20; ++i)
            facts.expect(sum.call() == KEEL_OK, "timestamps: an op fails while it is timed");
        facts.expect(sum.x() == 41, "timestamps: an op gives another result while ops are timed");
        facts.expect(times.read(side.ctx(), number, begin, end, 7, &n) == KEEL_OK && n <= 7,
                     "timestamps: read fails, or returns more times than there is room for");
        uint32_t more = 0;
        facts.expect(times.read(side.ctx(), number + n, begin + n, end + n, room - n, &more) ==
                         KEEL_OK,
                     "timestamps: read fails");
        n += more;
        facts.expect(n == 20, fmt::format("timestamps: {} of 20 finished ops have a time", n));
        for (uint32_t i = 0; i < n; ++i) {
            facts.expect(number[i] == i + 1, "timestamps: ops are not numbered from 1 in order");
            facts.expect(begin[i] <= end[i], "timestamps: an op ends before it begins");
            facts.expect(i == 0 || begin[i] >= begin[i - 1],
                         "timestamps: an op begins before the previous op begins");
        }
        uint64_t now = 0;
        if (times.now != nullptr && times.now(side.ctx(), &now) == KEEL_OK && n > 0)
            facts.expect(now >= end[n - 1], "timestamps: now() is before the end of a finished op");
        keel_replay replay;
        if (adopt_extension(facts, library, KEEL_EXT_REPLAY, KEEL_PREFIX(keel_replay, destroy),
                            replay) &&
            replay.begin(side.ctx()) == KEEL_OK)
            replay.end(side.ctx(), nullptr);
        facts.expect(times.enable(side.ctx(), round == 0 ? 1 : 0) == KEEL_OK,
                     "timestamps: enable fails");
    }
    Sum sum(side, 1, 2);
    facts.expect(sum.call() == KEEL_OK && sum.x() == 3,
                 "timestamps: an op fails or gives another result after timing was disabled");
    facts.expect(times.read(side.ctx(), number, begin, end, room, &n) == KEEL_OK && n == 0,
                 "timestamps: an op has a time although timing was disabled");
}

void check_later_reads(Facts &facts, const Library &library, Side &side) {
    keel_stream_counts_table counts;
    const bool tells = adopt_extension(facts, library, KEEL_EXT_STREAM_COUNTS,
                                       KEEL_PREFIX(keel_stream_counts_table, read), counts);
    keel_stream_counts before = {KEEL_HEADER(keel_stream_counts)}, after = before;
    if (tells)
        facts.expect(counts.read(side.ctx(), &before) == KEEL_OK, "stream counts: read fails");
    keel_read_later later;
    if (!adopt_extension(facts, library, KEEL_EXT_READ_LATER, KEEL_PREFIX(keel_read_later, finish),
                         later) ||
        !has_ops(side))
        return;
    const uint64_t held = side.bytes_held();
    {
        Sum sum(side, 1, 2);
        uint64_t number[KEEL_READ_LATER_MOST + 1] = {}, ticket = 0;
        const auto start = [&](uint64_t &n, uint64_t offset = 0, uint64_t bytes = 4) {
            return later.start(side.ctx(), sum.buffer(), offset, bytes, &n);
        };
        float value = 0, row[16] = {};
        const keel_status first = start(number[0]);
        if (later.serves != nullptr && later.serves(side.ctx()) == 0) {
            facts.expect(first == KEEL_E_UNSUPPORTED && number[0] == 0,
                         "read later: start must return UNSUPPORTED if serves returns 0");
            return;
        }
        facts.expect(first == KEEL_OK && later.finish(side.ctx(), number[0], &value) == KEEL_OK &&
                         value == 1,
                     "read later: the first read fails, or returns wrong bytes");
        // Each read must see the work that was queued before it. It must not see work that was
        // queued after it. This is tested with and without a flush in between.
        sum.call();
        facts.expect(start(number[0]) == KEEL_OK && number[0] != 0, "read later: start fails");
        sum.call();
        side.table().flush(side.ctx(), &ticket);
        facts.expect(start(number[1], 4 * (Sum::n - 16), 64) == KEEL_OK,
                     "read later: a second start fails");
        sum.call();
        facts.expect(
            later.finish(side.ctx(), number[1], row) == KEEL_OK && row[0] == 5 && row[15] == 5,
            "read later: finishing the second read first fails, or the read sees a later command");
        facts.expect(later.finish(side.ctx(), number[0], &value) == KEEL_OK && value == 3,
                     "read later: a read returns bytes of another place in the stream");
        facts.expect(later.finish(side.ctx(), number[0], &value) == KEEL_E_INVALID_ARG,
                     "read later: finish of a finished read must return INVALID_ARG");
        facts.expect(later.finish(side.ctx(), 0, &value) == KEEL_E_INVALID_ARG,
                     "read later: finish of read 0 must return INVALID_ARG");
        facts.expect(sum.x() == 7, "read later: a command after a read is lost");
        // These ranges are invalid.
        facts.expect(start(number[0], 0, 0) == KEEL_E_INVALID_ARG && number[0] == 0,
                     "read later: start with 0 bytes must return INVALID_ARG");
        facts.expect(start(number[0], 0, KEEL_READ_LATER_BYTES + 1) == KEEL_E_INVALID_ARG,
                     "read later: start with too many bytes must return INVALID_ARG");
        facts.expect(
            start(number[0], 4 * Sum::n - 2, 4) == KEEL_E_INVALID_ARG &&
                start(number[0], UINT64_MAX - 1, 4) == KEEL_E_INVALID_ARG,
            "read later: start with bytes after the end of the buffer must return INVALID_ARG");
        // Starts the largest allowed number of reads. Then discards them and starts new reads,
        // while the first reads are still pending.
        for (int round = 0; round < 3; ++round) {
            for (uint32_t i = 0; i < KEEL_READ_LATER_MOST; ++i) {
                sum.call();
                facts.expect(
                    start(number[i]) == KEEL_OK,
                    "read later: start fails before KEEL_READ_LATER_MOST reads are in use");
            }
            facts.expect(start(number[KEEL_READ_LATER_MOST]) == KEEL_E_UNSUPPORTED &&
                             number[KEEL_READ_LATER_MOST] == 0,
                         "read later: start must return UNSUPPORTED if KEEL_READ_LATER_MOST reads "
                         "are in use");
            const float least = 7 + 2 * static_cast<float>(round * KEEL_READ_LATER_MOST);
            for (uint32_t i = 0; i < KEEL_READ_LATER_MOST; ++i) {
                const bool wanted = i % 2 == 0 || round == 1;
                facts.expect(later.finish(side.ctx(), number[i], wanted ? &value : nullptr) ==
                                 KEEL_OK,
                             "read later: finish fails");
                if (wanted)
                    facts.expect(value == least + 2 * static_cast<float>(i + 1),
                                 "read later: a read returns the bytes of another read");
            }
        }
        keel_replay replay;
        if (adopt_extension(facts, library, KEEL_EXT_REPLAY, KEEL_PREFIX(keel_replay, destroy),
                            replay) &&
            replay.begin(side.ctx()) == KEEL_OK) {
            facts.expect(start(number[0]) == KEEL_E_INVALID_ARG,
                         "read later: start during a recording must return INVALID_ARG");
            replay.end(side.ctx(), nullptr);
        }
        // This read is never finished.
        facts.expect(start(number[0]) == KEEL_OK, "read later: start fails");
    }
    side.finish();
    const uint64_t kept = side.bytes_held();
    facts.expect(kept == held, "read later: mem_info.ours does not return to the earlier value");
    if (!tells) return;
    facts.expect(counts.read(side.ctx(), &after) == KEEL_OK && after.submits >= before.submits &&
                     after.waits >= before.waits,
                 "stream counts: read fails, or a count has become smaller");
}

} // namespace keel::conformance
