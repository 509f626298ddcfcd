#pragma once

#include "eval/bench/op_times.hpp"
#include "eval/stats/spread.hpp"
#include "run/session.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace keel {

struct BenchOptions {
    std::vector<int64_t> prefill; // lengths of the prompts in tokens
    std::vector<int64_t> depths;  // numbers of tokens in the cache before a timed decode
    int64_t decode = 64;          // number of timed tokens at each depth; 0: no decode
    // The numbers of sequences that decode together at each depth. Each sequence decodes `decode`
    // tokens. Numbers above 1 need PipelineOptions::batch.
    std::vector<int64_t> sequences = {1};
    int64_t repeat = 3; // number of rounds; each round runs every test once
    uint64_t seed = 1;  // seed of the random token ids
    // If true, also measures two passes op by op: the longest prompt, and one decode at the largest
    // depth.
    bool ops = true;
    // Bytes of the bandwidth probe's buffer. 0: no probes. nullopt: larger than every CPU cache.
    std::optional<uint64_t> probe_bytes;
    // Reports progress as stage "bench", in tokens of all tests and rounds. The callback can throw
    // to stop the measurement.
    Progress progress;
};
// The default lengths: prompts of 128 and 512 tokens, and depths of 0 and 512 tokens. Lengths that
// do not fit in `context` are left out.
std::vector<int64_t> default_prefill(int64_t context);
std::vector<int64_t> default_depths(int64_t context, int64_t decode);

struct PrefillResult {
    int64_t tokens = 0;
    Spread rate;      // tokens per second
    double flop = 0;  // operations of the whole prompt: matrix products and attention
    double flops = 0; // operations per second at the median rate
    // The speed `flops` as a share of the measured f32 peak. nullopt if at least one matmul of the
    // prompt is not limited by the f32 peak (see f32_peak_limits()).
    std::optional<double> of_peak;
    // The peak of the bytes of cache and policy data while the prompt is read.
    uint64_t held_peak_bytes = 0;
};

struct DecodeResult {
    int64_t depth = 0, tokens = 0;
    int64_t sequences = 1; // the number of sequences that take steps together; each sequence
                           // decodes `tokens` tokens
    Spread rate;           // tokens per second of all sequences together
    // The speed-up over one sequence at the same depth: the median of the ratios of all rounds.
    // nullopt if one sequence was not measured.
    std::optional<double> of_one;
    uint64_t kv_bytes = 0;        // bytes of the caches at the end
    uint64_t policy_bytes = 0;    // bytes of the policies' data at the end, outside the caches
    uint64_t held_peak_bytes = 0; // the peak of caches and policy data, including the time while
                                  // prompts are read
    // Bytes of K and V that attention reads for a token, averaged over the tokens.
    uint64_t kv_read_per_token = 0;
    // Bytes read per second at the median rate: the weights once in each step, and K and V of each
    // sequence.
    double bytes_per_second = 0;
    // The memory bandwidth in bytes per second, measured before each round. There are no samples if
    // the probe is off.
    Spread probe;
    std::optional<double> of_bandwidth; // share of the bandwidth: the median of the rounds' ratios
    // the numbers of submits and waits for each step; a step gives one token for each sequence
    double submits = 0, waits = 0;
};

// A pass that is measured op by op.
struct OpsResult {
    bool is_prefill = false;
    // tokens: number of tokens in this pass. depth: number of tokens in the cache before the pass.
    int64_t tokens = 0, depth = 0;
    // The time of the same number of tokens at the median rate, without op-by-op measurement.
    double seconds = 0;
    // The memory bandwidth in bytes per second, measured just before the pass. 0: no probe.
    double read = 0;
    std::vector<OpTotal> ops; // in the order in which the ops first ran
};

struct BenchReport {
    std::string commit; // commit of the program's build; the caller sets this text; empty: unknown
    // The machine and the backend.
    std::string cpu, backend, device, description, sync;
    uint32_t threads = 0;      // the number of threads of the host's thread team; the probes use
                               // all threads
    uint64_t memory_bytes = 0; // the memory that this process is allowed to use
    std::string model, architecture, weights, policy;
    uint64_t parameters = 0, weight_bytes_per_token = 0, weight_bytes = 0, kv_bytes_per_token = 0;
    uint64_t kv_window_bytes = 0; // limit for the bytes of layers that keep only their window
    keel_dtype key_dtype = KEEL_DTYPE_NONE, value_dtype = KEEL_DTYPE_NONE;
    // Number of planned ops that do not run on the backend itself. The ops of the cache count too.
    uint64_t fallbacks = 0;
    double load_seconds = 0;
    uint64_t peak_resident_bytes = 0;
    int64_t repeat = 0;
    // Results of the probes.
    std::string probe_isa;                      // instruction set of the probes; empty: no probes
    uint64_t probe_bytes = 0;                   // size of the probe's buffer
    double read_plain = 0, read_prefetched = 0; // bytes per second; medians over all rounds
    double peak_flops = 0;                      // f32 multiply-adds in operations per second
    std::vector<PrefillResult> prefill;
    std::vector<DecodeResult> decode;
    std::vector<OpsResult> ops; // the prefill pass first, then the decode pass
};
// Returns the number of tokens in the cache before a decode at `depth`. The first step of a model
// is always a prompt. So for depth 0, the cache has one token.
int64_t bench_tokens_before(int64_t depth);

// Returns the number of floating-point operations for a prompt of `tokens` tokens. The number
// includes two operations for each product of a token and a weight, and causal attention over all
// slots. The output projection counts only for the last token.
double prefill_flop(const ModelConfig &model, int64_t tokens);

// Runs the measurement. Throws Error(usage) for lengths that do not fit in the context, and
// Error(resource) for lengths that do not fit in the cache's limit (kv.max_mib).
BenchReport run_bench(Pipeline &pipeline, const BenchOptions &options);

} // namespace keel
