#include "eval/bench/bench_sync.hpp"

#include "base/error.hpp"
#include "platform/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

void check(const Pipeline &pipeline, const SyncBenchOptions &o) {
    pipeline.refuse_hybrid("sync strategies under measurement"); // each backend has a stream of its own
    const auto refuse = [](const char *name, int64_t least, int64_t most, int64_t found) {
        throw_error(ErrorKind::usage, "{}: expected {} to {}, found {}", name, least, most, found);
    };
    if (o.decode < 1 || o.decode > 100'000) refuse("--decode", 1, 100'000, o.decode);
    if (o.repeat < 1 || o.repeat > 10'000) refuse("--repeat", 1, 10'000, o.repeat);
    if (o.ops.empty()) throw_error(ErrorKind::usage, "--ops: expected at least one number of ops");
    for (const uint32_t n : o.ops)
        if (n < 1 || n > 1'000'000) refuse("--ops", 1, 1'000'000, n);
    if (o.depth < 0 || std::max<int64_t>(o.depth, 1) + o.decode > pipeline.context())
        throw_error(
            ErrorKind::usage,
            "--depth {} and --decode {} are more than the context of {} tokens holds; raise model.context",
            o.depth, o.decode, pipeline.context());
}

// The ranks between which the median lies with 95% confidence: a count of n fair coins below the first has a chance of at most 2.5%.
void median_interval(const std::vector<double> &samples, double &low, double &high) {
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    const size_t n = sorted.size();
    size_t rank = 0; // samples that are left out on either side
    double chance = std::pow(0.5, static_cast<double>(n)), sum = 0;
    for (size_t k = 0; k < n / 2; ++k) {
        sum += chance;
        if (sum > 0.025) break;
        rank = k;
        chance *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    }
    low = sorted[rank];
    high = sorted[n - 1 - rank];
}

class SyncBench {
  public:
    SyncBench(Pipeline &pipeline, const SyncBenchOptions &options)
        : pipeline_(pipeline), options_(options), stream_(pipeline.executor().stream()),
          own_(stream_.strategy()), session_(pipeline) {
        strategies_.push_back({SyncStrategy::Kind::eager, 0});
        for (const uint32_t n : options.ops)
            strategies_.push_back({SyncStrategy::Kind::batched, n});
        strategies_.push_back({SyncStrategy::Kind::lazy, 0});
        std::mt19937_64 random(options.seed);
        for (int64_t i = 0; i < std::max<int64_t>(options.depth, 1) + options.decode; ++i)
            ids_.push_back(
                static_cast<int32_t>(random() % static_cast<uint64_t>(pipeline.model().vocab_size)));
    }
    ~SyncBench() { stream_.set_strategy(own_); }
    SyncBench(const SyncBench &) = delete;
    SyncBench &operator=(const SyncBench &) = delete;

    SyncReport run() {
        const size_t n = strategies_.size();
        std::vector<std::vector<double>> rates(n);
        std::vector<SyncResult> results(n);
        double ops = 0;
        const uint64_t total = (static_cast<uint64_t>(options_.repeat) + 1) * n;
        for (int64_t round = -1; round < options_.repeat; ++round) {
            for (size_t i = 0; i < n; ++i) {
                const size_t s = round % 2 == 0 ? i : n - 1 - i;
                const double rate = decode_under(strategies_[s], results[s], ops);
                if (round >= 0) rates[s].push_back(rate);
                if (options_.progress)
                    options_.progress("bench", static_cast<uint64_t>(round + 1) * n + i + 1, total);
                if (pipeline_.host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
            }
        }
        const std::vector<double> eager = rates[0];
        for (size_t s = 0; s < n; ++s) {
            std::vector<double> ratios;
            for (size_t r = 0; r < rates[s].size(); ++r)
                ratios.push_back(rates[s][r] / eager[r]);
            results[s].strategy = strategies_[s];
            median_interval(ratios, results[s].low, results[s].high);
            results[s].ratio = Spread::of(std::move(ratios));
            results[s].rate = Spread::of(std::move(rates[s]));
        }
        return describe(std::move(results), ops);
    }

  private:
    // Tokens per second of one run.
    double decode_under(const SyncStrategy &strategy, SyncResult &result, double &ops) {
        stream_.wait();
        stream_.set_strategy(strategy);
        session_.reset();
        const auto before = static_cast<size_t>(std::max<int64_t>(options_.depth, 1));
        session_.prefill(std::span(ids_).first(before));
        (void)session_.greedy();
        stream_.wait();
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.decode; ++i) {
            session_.decode(ids_[before + static_cast<size_t>(i)]);
            (void)session_.greedy(); // a token comes out of every step, as in a run
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        const Stream::Counters counters = session_.stats().decode_stream;
        const auto tokens = static_cast<double>(options_.decode);
        result.submits = static_cast<double>(counters.submits) / tokens;
        result.waits = static_cast<double>(counters.waits) / tokens;
        ops = static_cast<double>(counters.ops) / tokens;
        return tokens / seconds;
    }

    SyncReport describe(std::vector<SyncResult> results, double ops) {
        SyncReport report;
        Device &device = pipeline_.device();
        report.backend = device.plugin();
        report.device = device.device_info().name;
        report.description = device.info().description;
        stream_.set_strategy({SyncStrategy::Kind::automatic, 0});
        report.automatic = to_string(stream_.strategy());
        report.model = pipeline_.source().path();
        report.weights = pipeline_.weights().dtype_name();
        report.cpu = machine_info().cpu;
        report.ops = ops;
        report.decode = options_.decode;
        report.depth = options_.depth;
        report.repeat = options_.repeat;
        report.results = std::move(results);
        return report;
    }

    Pipeline &pipeline_;
    const SyncBenchOptions &options_;
    Stream &stream_;
    SyncStrategy own_;
    Session session_;
    std::vector<SyncStrategy> strategies_;
    std::vector<int32_t> ids_;
};

} // namespace

SyncReport run_sync_bench(Pipeline &pipeline, const SyncBenchOptions &options) {
    check(pipeline, options);
    return SyncBench(pipeline, options).run();
}

} // namespace keel
