#pragma once

#include "device/stream.hpp"
#include "eval/stats/spread.hpp"
#include "run/session.hpp"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// What submitting and waiting costs: decoding under each sync strategy, side by side.
struct SyncBenchOptions {
    std::vector<uint32_t> ops = {1, 2, 5, 10, 20, 50, 100, 200}; // N of `batched: N`; ascending, each from 1
    int64_t decode = 16;                                         // tokens of one run
    int64_t depth = 0;                                           // tokens in the cache before
    int64_t repeat = 20;                                         // rounds
    uint64_t seed = 1;                                           // of the token ids
    Progress progress;                                           // stage "bench": runs; may throw to stop
};

struct SyncResult {
    SyncStrategy strategy;
    Spread rate;  // tokens per second
    Spread ratio; // to `eager`, round by round: above 1 is faster
    double
        low = 0,
        high =
            0; // 95% interval of the median ratio, from its order statistics: no shape of the noise is assumed
    double submits = 0, waits = 0; // per token
};

struct SyncReport {
    std::string backend, device, description, automatic; // what `auto` means on this device
    std::string model, weights, cpu;
    double ops = 0; // that a token queues
    int64_t decode = 0, depth = 0, repeat = 0;
    std::vector<SyncResult> results; // eager, batched by rising N, lazy
};

// Runs every strategy once a round, forwards in one and backwards in the next, so that what slows the machine down falls on all alike;
// a round before the first is not counted. The pipeline's own strategy is in force again afterwards. Throws Error(usage) for options
// out of range and depths that the context does not hold.
SyncReport run_sync_bench(Pipeline &pipeline, const SyncBenchOptions &options);

std::string sync_table(const SyncReport &report, std::string_view version);
nlohmann::ordered_json sync_json(const SyncReport &report, std::string_view version);
// One offline page: speed over N as a curve, eager and lazy as levels.
std::string sync_html(const SyncReport &report, std::string_view version);
// Stands near the beginning of each page: what tells it from somebody's own.
inline constexpr std::string_view sync_html_mark = "<meta name=generator content=\"keel bench sync\">";

} // namespace keel
