#include "eval/bench/bench.hpp"

#include "eval/bench/op_times.hpp"
#include "eval/bench/probes/bandwidth.hpp"
#include "eval/bench/probes/flops.hpp"
#include "platform/machine.hpp"
#include "run/session_batch.hpp"

#include <algorithm>
#include <chrono>
#include <random>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

// Bytes of K and V in the slots in use. The attention of a decode step reads these bytes.
uint64_t kv_in_use(const KvCache &cache) {
    const KvShape &shape = cache.shape();
    const uint64_t slot = keel_dtype_row_bytes(shape.key_dtype, shape.head_dim) +
                          keel_dtype_row_bytes(shape.value_dtype, shape.head_dim);
    uint64_t slots = 0;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head)
            slots += static_cast<uint64_t>(cache.length(layer, head));
    }
    return slots * slot;
}

uint64_t kv_in_use(const LayerCaches &caches) {
    return kv_in_use(caches.main()) + (caches.window() ? kv_in_use(*caches.window()) : 0);
}

void require_context(const Pipeline &pipeline, int64_t tokens, const std::string &what) {
    if (tokens <= pipeline.context() || !pipeline.policy_setup().keeps_all()) return;
    throw_error(
        ErrorKind::usage,
        "{} needs a context of {} tokens, but the pipeline has {}; use shorter lengths, or set "
        "model.context (the model supports {})",
        what, tokens, pipeline.context(), pipeline.model().max_positions);
}

void check(const Pipeline &pipeline, const BenchOptions &o) {
    constexpr int64_t most = int64_t{1} << 24;
    const auto in_range = [](const char *what, int64_t value, int64_t low, int64_t high) {
        if (value < low || value > high)
            throw_error(ErrorKind::usage, "{}: expected {} to {}, found {}", what, low, high,
                        value);
    };
    in_range("--repeat", o.repeat, 1, 1000);
    in_range("--decode", o.decode, 0, most);
    for (const int64_t n : o.prefill) {
        in_range("--prefill", n, 1, most);
        require_context(pipeline, n, fmt::format("prefill of {}", n));
    }
    for (const int64_t depth : o.depths) {
        in_range("--depth", depth, 0, most);
        if (o.decode > 0)
            require_context(pipeline, bench_tokens_before(depth) + o.decode,
                            fmt::format("decoding {} tokens at depth {}", o.decode, depth));
    }
    for (const int64_t n : o.sequences) in_range("--batch", n, 1, pipeline.batch());
    if (o.prefill.empty() && (o.depths.empty() || o.decode == 0))
        throw_error(ErrorKind::usage,
                    "expected a prefill length, or a depth with --decode above 0; found neither");
}

class Bench {
  public:
    Bench(Pipeline &pipeline, const BenchOptions &options)
        : pipeline_(pipeline), options_(options), session_(pipeline) {
        std::mt19937_64 random(options.seed);
        int64_t longest = 1;
        for (const int64_t n : options.prefill) longest = std::max(longest, n);
        for (const int64_t depth : options.depths)
            longest = std::max(longest, bench_tokens_before(depth) + options.decode);
        const auto vocab = static_cast<uint64_t>(pipeline.model().vocab_size);
        for (int64_t i = 0; i < longest; ++i)
            ids_.push_back(static_cast<int32_t>(random() % vocab));
        for (const int64_t n : options.prefill) total_ += n;
        if (options.decode > 0) {
            for (const int64_t depth : options.depths) {
                for (const int64_t n : options.sequences) {
                    total_ += n * (bench_tokens_before(depth) + options.decode);
                    decode_.push_back({depth, n, {}, {}, {}, 0, 0, 0, 0, 0, 0});
                }
            }
        }
        total_ *= options.repeat;
        if (!options.ops) return;
        if (!options.prefill.empty()) total_ += longest_prefill();
        if (const DecodeSamples *deepest = deepest_decode())
            total_ += bench_tokens_before(deepest->depth) + options.decode;
    }

    BenchReport run() {
        make_probes();
        warm_up();
        std::vector<std::vector<double>> prefill(options_.prefill.size());
        std::vector<uint64_t> prefill_peaks(prefill.size());
        for (int64_t round = 0; round < options_.repeat; ++round) {
            measure_peak();
            for (size_t i = 0; i < prefill.size(); ++i) {
                prefill[i].push_back(prefill_rate(options_.prefill[i]));
                prefill_peaks[i] = session_.held_peak_bytes();
            }
            for (DecodeSamples &samples : decode_) decode_once(samples);
        }
        for (size_t i = 0; i < prefill.size(); ++i)
            add_prefill(options_.prefill[i], std::move(prefill[i]), prefill_peaks[i]);
        for (const DecodeSamples &samples : decode_) add_decode(samples);
        if (options_.ops) watch_ops();
        describe();
        return std::move(report_);
    }

  private:
    struct DecodeSamples {
        int64_t depth, sequences;
        std::vector<double> rates, probe, ratios;
        uint64_t kv_bytes = 0, policy_bytes = 0, held_peak_bytes = 0, kv_read = 0;
        double submits = 0, waits = 0;
    };

    void make_probes() {
        const MemoryInfo memory = memory_info();
        const MachineInfo machine = machine_info();
        report_.cpu = machine.cpu;
        report_.memory_bytes = memory.total;
        ThreadTeam &team = pipeline_.host().team();
        report_.threads = team.cpus();
        const uint64_t bytes = options_.probe_bytes.value_or(
            probe_buffer_bytes(machine.last_level_cache, memory.available));
        peak_before_probe_ = peak_resident_bytes();
        if (bytes == 0) return;
        require_memory(bytes, "the bandwidth probe", "set --probe-mib to a smaller size, or to 0",
                       memory);
        probe_ = std::make_unique<BandwidthProbe>(team, bytes);
        if (probe_->bytes() == 0) { // the probe's buffer has less than one unit for each thread
            probe_.reset();
            return;
        }
        report_.probe_isa = probe_->isa();
        for (const auto &engine : pipeline_.engines()) {
            for (const PlannedOp *op : engine->graph->ops(StepForm::prefill)) {
                const bool counts = op->op() == KEEL_OP_MATMUL ||
                                    op->op() == KEEL_OP_EXPERT_MATMUL ||
                                    op->op() == KEEL_OP_ATTENTION;
                if (counts && !f32_peak_limits(engine->device(), *op)) is_f32_ = false;
            }
        }
        report_.probe_bytes = probe_->bytes();
    }

    // The first steps touch memory for the first time and allocate buffers. So the warm-up runs the
    // first steps before the measurement. The warm-up's prompt is as long as the largest chunk of
    // the longest prompt, so that the buffers are large enough.
    void warm_up() {
        int64_t most = 16;
        for (const int64_t tokens : options_.prefill)
            most = std::max<int64_t>(most, std::min<int64_t>(tokens, 512));
        const auto n =
            static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(ids_.size()), most));
        session_.prefill(std::span(ids_).first(n));
        for (int i = 0; i < 2 && session_.can_take(1); ++i) {
            session_.decode(ids_.front());
            (void)session_.greedy();
        }
        if (probe_) probe_->measure();
        advance(0);
    }

    void measure_peak() {
        if (!probe_) return;
        const FlopsReading reading = measure_flops(pipeline_.host().team());
        report_.peak_flops = std::max(report_.peak_flops, reading.flops);
    }

    double probe_bandwidth() {
        if (!probe_) return 0;
        const BandwidthProbe::Reading reading = probe_->measure();
        plain_.push_back(reading.plain);
        prefetched_.push_back(reading.prefetched);
        return reading.best();
    }

    void advance(int64_t tokens) {
        done_ += tokens;
        if (options_.progress)
            options_.progress("bench", static_cast<uint64_t>(done_), static_cast<uint64_t>(total_));
        // After Ctrl-C, sessions stop early, so the measured times are invalid.
        if (pipeline_.host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
    }

    double prefill_rate(int64_t n) {
        session_.reset();
        const auto start = Clock::now();
        session_.prefill(std::span(ids_).first(static_cast<size_t>(n)));
        (void)session_.logits();
        const double rate = static_cast<double>(n) / seconds_since(start);
        advance(n);
        return rate;
    }

    void decode_once(DecodeSamples &samples) {
        const double bandwidth = probe_bandwidth();
        const double rate = samples.sequences == 1 ? decode_one(samples) : decode_together(samples);
        samples.rates.push_back(rate);
        if (bandwidth > 0) {
            const double steps = rate / static_cast<double>(samples.sequences);
            samples.probe.push_back(bandwidth);
            samples.ratios.push_back(steps * bytes_read(samples) / bandwidth);
        }
        advance(samples.sequences * options_.decode);
    }

    void fill(Session &session, int64_t tokens) {
        session.reset();
        session.prefill(std::span(ids_).first(static_cast<size_t>(tokens)));
        (void)session.logits();
        advance(tokens);
    }

    double decode_one(DecodeSamples &samples) {
        const int64_t before = bench_tokens_before(samples.depth);
        fill(session_, before);
        const uint64_t kv_before = kv_in_use(session_.cache().caches());
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.decode; ++i) {
            session_.decode(ids_[static_cast<size_t>(before + i)]);
            (void)session_.greedy(); // reads the token back after every step, as `keel run` does
        }
        const double rate = static_cast<double>(options_.decode) / seconds_since(start);
        samples.kv_read = (kv_before + kv_in_use(session_.cache().caches())) / 2;
        const SessionStats &stats = session_.stats();
        samples.kv_bytes = stats.kv_bytes;
        samples.policy_bytes = stats.policy_bytes;
        samples.held_peak_bytes = stats.held_peak_bytes;
        const auto tokens = static_cast<double>(options_.decode);
        samples.submits = static_cast<double>(stats.decode_stream.submits) / tokens;
        samples.waits = static_cast<double>(stats.decode_stream.waits) / tokens;
        return rate;
    }

    // Decodes several sequences together. Returns the tokens per second of all sequences together.
    double decode_together(DecodeSamples &samples) {
        const auto n = static_cast<size_t>(samples.sequences);
        const int64_t before = bench_tokens_before(samples.depth);
        // The batch is kept, so that the memory of the batch is reused, like the memory of
        // session_.
        if (!batch_) batch_ = std::make_unique<SessionBatch>(pipeline_);
        SessionBatch &batch = *batch_;
        const SessionBatch::Stats stats_before = batch.stats();
        std::vector<std::unique_ptr<Session>> owned;
        std::vector<Session *> sessions;
        // The bytes of the sessions that have read their prompts: `held` is the present number,
        // `most` is the peak.
        uint64_t held = 0, most = 0;
        for (size_t i = 0; i < n; ++i) {
            owned.push_back(batch.make_session());
            sessions.push_back(owned.back().get());
            fill(*sessions.back(), before);
            most = std::max(most, held + sessions.back()->held_peak_bytes());
            held += sessions.back()->held_bytes();
        }
        const auto in_use = [&] {
            uint64_t bytes = 0;
            for (Session *session : sessions) bytes += kv_in_use(session->cache().caches());
            return bytes;
        };
        const uint64_t kv_before = in_use();
        std::vector<int32_t> ids(n);
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.decode; ++i) {
            ids.assign(n, ids_[static_cast<size_t>(before + i)]);
            for (const auto &outcome : batch.decode(sessions, ids, SessionBatch::Read::greedy)) {
                if (outcome.kind != SessionBatch::Outcome::Kind::done)
                    throw_error(outcome.error().kind(), "decode of {} sequences together: {}", n,
                                outcome.detail);
            }
        }
        const double seconds = seconds_since(start);
        samples.kv_read = (kv_before + in_use()) / 2;
        samples.kv_bytes = samples.policy_bytes = 0;
        for (Session *session : sessions) {
            samples.kv_bytes += session->kv_bytes();
            samples.policy_bytes += session->policy_bytes();
        }
        samples.held_peak_bytes = std::max(most, samples.kv_bytes + samples.policy_bytes);
        const auto steps = static_cast<double>(options_.decode);
        const Stream::Counters counters = batch.stats().stream - stats_before.stream;
        samples.submits = static_cast<double>(counters.submits) / steps;
        samples.waits = static_cast<double>(counters.waits) / steps;
        return static_cast<double>(n) * steps / seconds;
    }

    int64_t longest_prefill() const {
        return *std::max_element(options_.prefill.begin(), options_.prefill.end());
    }
    // Returns the samples of the decode of one sequence at the largest depth. NULL: no decode of
    // one sequence was measured.
    const DecodeSamples *deepest_decode() const {
        const DecodeSamples *deepest = nullptr;
        for (const DecodeSamples &samples : decode_)
            if (samples.sequences == 1 && (deepest == nullptr || samples.depth > deepest->depth))
                deepest = &samples;
        return deepest;
    }

    void watch_ops() {
        if (!options_.prefill.empty()) {
            OpsResult result;
            result.is_prefill = true;
            result.tokens = longest_prefill();
            result.read = probe_bandwidth();
            const OpTimes times(pipeline_);
            (void)prefill_rate(result.tokens);
            for (const PrefillResult &p : report_.prefill)
                if (p.tokens == result.tokens)
                    result.seconds = static_cast<double>(p.tokens) / p.rate.median;
            add_ops(std::move(result), times);
        }
        if (const DecodeSamples *deepest = deepest_decode()) {
            OpsResult result;
            result.tokens = options_.decode;
            result.depth = deepest->depth;
            result.read = probe_bandwidth();
            result.seconds = static_cast<double>(result.tokens) / Spread::of(deepest->rates).median;
            fill(session_, bench_tokens_before(result.depth));
            const OpTimes times(pipeline_);
            for (int64_t i = 0; i < result.tokens; ++i) {
                session_.decode(ids_[static_cast<size_t>(bench_tokens_before(result.depth) + i)]);
                (void)session_.greedy();
            }
            advance(result.tokens);
            add_ops(std::move(result), times);
        }
    }

    void add_ops(OpsResult result, const OpTimes &times) {
        result.ops = times.totals();
        report_.ops.push_back(std::move(result));
    }

    // Returns the bytes that one step reads: weights, K and V.
    double bytes_read(const DecodeSamples &samples) const {
        const auto tokens = static_cast<uint32_t>(samples.sequences);
        return static_cast<double>(pipeline_.engines().weight_bytes_per_token(tokens) +
                                   samples.kv_read);
    }

    void add_prefill(int64_t n, std::vector<double> rates, uint64_t held_peak_bytes) {
        PrefillResult result;
        result.tokens = n;
        result.held_peak_bytes = held_peak_bytes;
        result.rate = Spread::of(std::move(rates));
        result.flop = prefill_flop(pipeline_.model(), n);
        result.flops = result.flop / static_cast<double>(n) * result.rate.median;
        if (report_.peak_flops > 0 && is_f32_) result.of_peak = result.flops / report_.peak_flops;
        report_.prefill.push_back(std::move(result));
    }

    void add_decode(const DecodeSamples &samples) {
        DecodeResult result;
        result.depth = samples.depth;
        result.sequences = samples.sequences;
        result.tokens = options_.decode;
        result.rate = Spread::of(samples.rates);
        result.of_one = of_one(samples);
        result.kv_bytes = samples.kv_bytes;
        result.policy_bytes = samples.policy_bytes;
        result.held_peak_bytes = samples.held_peak_bytes;
        result.kv_read_per_token = samples.kv_read / static_cast<uint64_t>(samples.sequences);
        result.bytes_per_second =
            result.rate.median / static_cast<double>(samples.sequences) * bytes_read(samples);
        result.probe = Spread::of(samples.probe);
        if (!samples.ratios.empty()) result.of_bandwidth = Spread::of(samples.ratios).median;
        result.submits = samples.submits;
        result.waits = samples.waits;
        report_.decode.push_back(std::move(result));
    }

    // Returns the speed-up over one sequence at the same depth. Each round measures one sequence
    // first, and several sequences after it.
    std::optional<double> of_one(const DecodeSamples &samples) const {
        const auto one =
            std::find_if(decode_.begin(), decode_.end(), [&](const DecodeSamples &other) {
                return other.depth == samples.depth && other.sequences == 1;
            });
        if (samples.sequences == 1 || one == decode_.end()) return std::nullopt;
        std::vector<double> ratios;
        for (size_t i = 0; i < samples.rates.size(); ++i)
            ratios.push_back(samples.rates[i] / one->rates[i]);
        return Spread::of(std::move(ratios)).median;
    }

    void describe() {
        const ModelConfig &model = pipeline_.model();
        Device &device = pipeline_.device();
        BenchReport &r = report_;
        r.backend = pipeline_.backends_text();
        r.device = device.device_info().name;
        r.description = device.info().description;
        r.sync = to_string(pipeline_.executor().stream().strategy());
        r.model = pipeline_.source().path();
        r.architecture = model.architecture->name;
        r.weights = pipeline_.weights().dtype_name();
        r.policy = *pipeline_.config().policy.plugin;
        r.parameters = model.parameter_count();
        r.weight_bytes_per_token = pipeline_.engines().weight_bytes_per_token();
        r.weight_bytes = pipeline_.engines().weight_bytes();
        r.kv_bytes_per_token = pipeline_.engines().kv_bytes_per_token();
        r.kv_window_bytes = pipeline_.engines().held_window_bytes();
        r.key_dtype = pipeline_.kv_shape().key_dtype;
        r.value_dtype = pipeline_.kv_shape().value_dtype;
        for (const PlannedOp *op : pipeline_.engines().ops())
            r.fallbacks += op->rung() == Rung::native ? 0 : 1;
        r.load_seconds = pipeline_.load_seconds();
        r.repeat = options_.repeat;
        r.read_plain = Spread::of(plain_).median;
        r.read_prefetched = Spread::of(prefetched_).median;
        // The probe's buffer stays resident, so the size of the buffer is subtracted. The peak
        // before the probe was measured separately.
        const uint64_t peak = peak_resident_bytes();
        r.peak_resident_bytes =
            std::max(peak_before_probe_, peak > r.probe_bytes ? peak - r.probe_bytes : 0);
    }

    Pipeline &pipeline_;
    const BenchOptions &options_;
    Session session_;
    // The batch for several sequences; NULL until the first measurement with several sequences.
    std::unique_ptr<SessionBatch> batch_;
    std::unique_ptr<BandwidthProbe> probe_;
    std::vector<int32_t> ids_;
    std::vector<DecodeSamples> decode_; // in the order of depth, then of the number of sequences
    std::vector<double> plain_, prefetched_;
    int64_t done_ = 0, total_ = 0; // progress in tokens
    uint64_t peak_before_probe_ = 0;
    bool is_f32_ = true; // the f32 peak limits all matrix products of a prompt
    BenchReport report_;
};

} // namespace

BenchReport run_bench(Pipeline &pipeline, const BenchOptions &options) {
    check(pipeline, options);
    return Bench(pipeline, options).run();
}

} // namespace keel
