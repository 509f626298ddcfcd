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
    facts.expect(fits, fmt::format("{}: the table is too small or of another ABI major", id));
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
                     "replay: begin within a recording is not INVALID_ARG");
        facts.expect(sum.write(1, 9) == KEEL_E_INVALID_ARG,
                     "replay: a write is recorded, or runs at once");
        facts.expect(sum.read() == KEEL_E_INVALID_ARG, "replay: buffer_read within a recording");
        uint64_t ticket = 0;
        facts.expect(side.table().flush(side.ctx(), &ticket) == KEEL_E_INVALID_ARG,
                     "replay: flush within a recording");
        facts.expect(replay.end(side.ctx(), &step) == KEEL_OK && step != nullptr,
                     "replay: end fails");
        facts.expect(sum.x() == 1, "replay: what is recorded runs before it is submitted");
        facts.expect(replay.submit(side.ctx(), step) == KEEL_OK, "replay: submit fails");
        facts.expect(sum.x() == 5, "replay: the recorded ops give something else");
        // The step is submitted between writes, which run in the order of the stream. The step is
        // submitted a second time before the first submission has run.
        sum.write(1, 10);
        replay.submit(side.ctx(), step);
        sum.write(1, 100);
        replay.submit(side.ctx(), step);
        replay.submit(side.ctx(), step);
        facts.expect(sum.call() == KEEL_OK, "replay: an op after a recording fails");
        facts.expect(
            sum.x() == 5 + 20 + 400 + 100,
            "replay: buffers are not read when the recording runs, or out of the stream's order");
        replay.submit(side.ctx(), step);
        replay.destroy(side.ctx(), step); // the submitted step must still run
        facts.expect(sum.x() == 525 + 200,
                     "replay: a recording that was destroyed is not what was submitted");
        // This recording is discarded.
        replay.begin(side.ctx());
        sum.call();
        facts.expect(replay.end(side.ctx(), nullptr) == KEEL_OK,
                     "replay: end without a result fails");
        facts.expect(sum.x() == 725, "replay: what was thrown away has run");
        facts.expect(replay.end(side.ctx(), &step) == KEEL_E_INVALID_ARG && step == nullptr,
                     "replay: end without begin is not INVALID_ARG");
        facts.expect(sum.call() == KEEL_OK && sum.x() == 825,
                     "replay: ops are not queued again after it");
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
                     "replay: recorded ops do not see what those before them wrote");
        replay.destroy(side.ctx(), step);
        replay.destroy(side.ctx(), nullptr);
    }
    side.finish();
    facts.expect(side.bytes_held() == held,
                 "replay: mem_info.ours does not come back after recordings");
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
        facts.expect(sum.x() == 41, "timestamps: a timed op gives something else");
        facts.expect(times.read(side.ctx(), number, begin, end, 7, &n) == KEEL_OK && n <= 7,
                     "timestamps: read gives more than there is room for");
        uint32_t more = 0;
        facts.expect(times.read(side.ctx(), number + n, begin + n, end + n, room - n, &more) ==
                         KEEL_OK,
                     "timestamps: read fails");
        n += more;
        facts.expect(n == 20, fmt::format("timestamps: {} of 20 ops that are done have a time", n));
        for (uint32_t i = 0; i < n; ++i) {
            facts.expect(number[i] == i + 1, "timestamps: ops are not numbered from 1 in order");
            facts.expect(begin[i] <= end[i], "timestamps: an op ends before it begins");
            facts.expect(i == 0 || begin[i] >= begin[i - 1],
                         "timestamps: an op begins before the one before it");
        }
        uint64_t now = 0;
        if (times.now != nullptr && times.now(side.ctx(), &now) == KEEL_OK && n > 0)
            facts.expect(now >= end[n - 1],
                         "timestamps: the clock stands before the end of what is done");
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
                 "timestamps: ops fail once they are timed no longer");
    facts.expect(times.read(side.ctx(), number, begin, end, room, &n) == KEEL_OK && n == 0,
                 "timestamps: there are times of ops that were not to be timed");
}

void check_later_reads(Facts &facts, const Library &library, Side &side) {
    keel_stream_counts_table counts;
    const bool tells = adopt_extension(facts, library, KEEL_EXT_STREAM_COUNTS,
                                       KEEL_PREFIX(keel_stream_counts_table, read), counts);
    keel_stream_counts before = {KEEL_HEADER(keel_stream_counts)}, after = before;
    if (tells)
        facts.expect(counts.read(side.ctx(), &before) == KEEL_OK,
                     "stream counts: they cannot be read");
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
                         "read later: start where it is not served is not UNSUPPORTED");
            return;
        }
        facts.expect(first == KEEL_OK && later.finish(side.ctx(), number[0], &value) == KEEL_OK &&
                         value == 1,
                     "read later: the first start fails, or its bytes are others");
        // Each read must see the work that was queued before it. It must not see work that was
        // queued after it. This is tested with and without a flush in between.
        sum.call();
        facts.expect(start(number[0]) == KEEL_OK && number[0] != 0, "read later: start fails");
        sum.call();
        side.table().flush(side.ctx(), &ticket);
        facts.expect(start(number[1], 4 * (Sum::n - 16), 64) == KEEL_OK,
                     "read later: a second start fails");
        sum.call();
        facts.expect(later.finish(side.ctx(), number[1], row) == KEEL_OK && row[0] == 5 &&
                         row[15] == 5,
                     "read later: finish out of order, or a later command is seen");
        facts.expect(later.finish(side.ctx(), number[0], &value) == KEEL_OK && value == 3,
                     "read later: the bytes are not those of their place in the stream");
        facts.expect(later.finish(side.ctx(), number[0], &value) == KEEL_E_INVALID_ARG,
                     "read later: a read that was finished is not INVALID_ARG");
        facts.expect(later.finish(side.ctx(), 0, &value) == KEEL_E_INVALID_ARG,
                     "read later: number 0 is not INVALID_ARG");
        facts.expect(sum.x() == 7, "read later: a command after a read is lost");
        // These ranges are invalid.
        facts.expect(start(number[0], 0, 0) == KEEL_E_INVALID_ARG && number[0] == 0,
                     "read later: 0 bytes are not INVALID_ARG");
        facts.expect(start(number[0], 0, KEEL_READ_LATER_BYTES + 1) == KEEL_E_INVALID_ARG,
                     "read later: too many bytes are not INVALID_ARG");
        facts.expect(start(number[0], 4 * Sum::n - 2, 4) == KEEL_E_INVALID_ARG &&
                         start(number[0], UINT64_MAX - 1, 4) == KEEL_E_INVALID_ARG,
                     "read later: bytes beyond the buffer are not INVALID_ARG");
        // Starts the largest allowed number of reads. Then discards them and starts new reads,
        // while the first reads are still pending.
        for (int round = 0; round < 3; ++round) {
            for (uint32_t i = 0; i < KEEL_READ_LATER_MOST; ++i) {
                sum.call();
                facts.expect(start(number[i]) == KEEL_OK,
                             "read later: fewer at once than there may be");
            }
            facts.expect(start(number[KEEL_READ_LATER_MOST]) == KEEL_E_UNSUPPORTED &&
                             number[KEEL_READ_LATER_MOST] == 0,
                         "read later: more at once than there may be are not UNSUPPORTED");
            const float least = 7 + 2 * static_cast<float>(round * KEEL_READ_LATER_MOST);
            for (uint32_t i = 0; i < KEEL_READ_LATER_MOST; ++i) {
                const bool wanted = i % 2 == 0 || round == 1;
                facts.expect(later.finish(side.ctx(), number[i], wanted ? &value : nullptr) ==
                                 KEEL_OK,
                             "read later: finish fails");
                if (wanted)
                    facts.expect(value == least + 2 * static_cast<float>(i + 1),
                                 "read later: another read's bytes");
            }
        }
        keel_replay replay;
        if (adopt_extension(facts, library, KEEL_EXT_REPLAY, KEEL_PREFIX(keel_replay, destroy),
                            replay) &&
            replay.begin(side.ctx()) == KEEL_OK) {
            facts.expect(start(number[0]) == KEEL_E_INVALID_ARG,
                         "read later: it is recorded, or runs at once");
            replay.end(side.ctx(), nullptr);
        }
        // This read is never finished.
        facts.expect(start(number[0]) == KEEL_OK, "read later: start fails");
    }
    side.finish();
    const uint64_t kept = side.bytes_held();
    facts.expect(kept == held, "read later: mem_info.ours does not come back");
    if (!tells) return;
    facts.expect(counts.read(side.ctx(), &after) == KEEL_OK && after.submits >= before.submits &&
                     after.waits >= before.waits,
                 "stream counts: they fall");
}

} // namespace keel::conformance
