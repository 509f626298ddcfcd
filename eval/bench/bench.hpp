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
    std::vector<int64_t> prefill; // prompt lengths, tokens
    std::vector<int64_t> depths;  // tokens in the cache before a decode is timed
    int64_t decode = 64;          // timed tokens at each depth; 0: no decode
    // At each depth these numbers of sequences decode together, `decode` tokens each. Numbers above
    // 1 need PipelineOptions::batch.
    std::vector<int64_t> sequences = {1};
    int64_t repeat = 3; // number of rounds; a round runs all tests once
    uint64_t seed = 1;  // seed of the token ids
    // Adds one pass of the longest prompt, and one of a sequence at the largest depth, measured op
    // by op.
    bool ops = true;
    // Size of the bandwidth probe's buffer. 0: no probes. Unset: larger than every cache.
    std::optional<uint64_t> probe_bytes;
    Progress progress; // stage "bench": tokens of all tests and repeats; may throw to stop
};
// The defaults: prefill of 128 and 512 tokens, decode at depths 0 and 512, as far as these fit in
// `context`.
std::vector<int64_t> default_prefill(int64_t context);
std::vector<int64_t> default_depths(int64_t context, int64_t decode);

struct PrefillResult {
    int64_t tokens = 0;
    Spread rate;      // tokens per second
    double flop = 0;  // of the whole prompt: matrix products and attention
    double flops = 0; // per second, at the median rate
    // Share of the measured f32 peak, if this peak limits all products (f32_peak_limits()).
    std::optional<double> of_peak;
    // The peak of cache plus policy while the prompt is read.
    uint64_t held_peak_bytes = 0;
};

struct DecodeResult {
    int64_t depth = 0, tokens = 0;
    int64_t sequences = 1; // sequences that take steps together, `tokens` each
    Spread rate;           // tokens per second of all sequences together
    // The speed-up over one sequence at the same depth, if that was measured. It is the median of
    // the ratios of the rounds.
    std::optional<double> of_one;
    uint64_t kv_bytes = 0;        // of the caches at the end
    uint64_t policy_bytes = 0;    // of the policies at the end, besides the caches
    uint64_t held_peak_bytes = 0; // the peak of caches plus policies, prompts included
    // Bytes of K and V that attention reads, as a mean over the tokens.
    uint64_t kv_read_per_token = 0;
    // Bytes read at the median rate: the weights once a step, and K and V of each sequence.
    double bytes_per_second = 0;
    // Memory bandwidth in bytes per second, measured before each round. No samples: no probe.
    Spread probe;
    std::optional<double> of_bandwidth; // share of the bandwidth: the median of the rounds' ratios
    double submits = 0, waits = 0;      // per step; a step gives one token of each sequence
};

// A pass, measured op by op.
struct OpsResult {
    bool is_prefill = false;
    int64_t tokens = 0, depth = 0; // tokens of this pass; tokens in the cache before it
    // Time of as many tokens at the median rate, without op-by-op measurement.
    double seconds = 0;
    // Memory bandwidth in bytes per second, measured just before. 0: no probe.
    double read = 0;
    std::vector<OpTotal> ops; // in the order of their first run
};

struct BenchReport {
    std::string commit; // of the program's build; set by the caller; empty: unknown
    // The machine and the backend.
    std::string cpu, backend, device, description, sync;
    uint32_t threads = 0;      // threads of the host's team, all of which the probes use
    uint64_t memory_bytes = 0; // memory that this process may use
    std::string model, architecture, weights, policy;
    uint64_t parameters = 0, weight_bytes_per_token = 0, weight_bytes = 0, kv_bytes_per_token = 0;
    uint64_t kv_window_bytes = 0; // the most bytes in layers that keep only their window
    keel_dtype key_dtype = KEEL_DTYPE_NONE, value_dtype = KEEL_DTYPE_NONE;
    // Planned ops, those of the cache included, that do not run on the backend itself.
    uint64_t fallbacks = 0;
    double load_seconds = 0;
    uint64_t peak_resident_bytes = 0;
    int64_t repeat = 0;
    // The results of the probes.
    std::string probe_isa;                      // instruction set; empty: no probes
    uint64_t probe_bytes = 0;                   // of the probe's buffer
    double read_plain = 0, read_prefetched = 0; // bytes per second, medians over all rounds
    double peak_flops = 0;                      // operations per second of f32 multiply-adds
    std::vector<PrefillResult> prefill;
    std::vector<DecodeResult> decode;
    std::vector<OpsResult> ops; // prefill first, then decode
};
// Tokens in the cache before a decode at a depth. A model's first step is always a prompt, so for
// depth 0 one token is read first.
int64_t bench_tokens_before(int64_t depth);

// Floating-point operations of a prompt of `tokens` tokens: two for each weight that a token is
// multiplied with (the output projection only for the last token), and causal attention over all
// slots.
double prefill_flop(const ModelConfig &model, int64_t tokens);

// Runs the measurement. Throws Error(usage) for lengths that do not fit in the context,
// Error(resource) for lengths that do not fit in the cache's limit.
BenchReport run_bench(Pipeline &pipeline, const BenchOptions &options);

} // namespace keel
