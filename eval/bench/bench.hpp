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
    int64_t decode = 64;          // tokens that are timed at each depth; 0: no decode
    // At each depth so many sequences at once, each of which decodes so many tokens; above 1 as
    // PipelineOptions::batch allows.
    std::vector<int64_t> sequences = {1};
    int64_t repeat = 3; // of everything, interleaved: all tests once, then all again
    uint64_t seed = 1;  // of the token ids
    bool ops = true; // one more pass each of the longest prompt and of one sequence at the largest
                     // depth, op by op
    std::optional<uint64_t>
        probe_bytes;   // of the bandwidth probe's buffer; 0: no probes; unset: what no cache holds
    Progress progress; // stage "bench": tokens of all tests and repeats; may throw to stop
};
// What is measured when nothing is asked for: prefill of 128 and 512, decode at 0 and 512, as far
// as they fit in `context`.
std::vector<int64_t> default_prefill(int64_t context);
std::vector<int64_t> default_depths(int64_t context, int64_t decode);

struct PrefillResult {
    int64_t tokens = 0;
    Spread rate;                   // tokens per second
    double flop = 0;               // of the whole prompt: matrix products and attention
    double flops = 0;              // per second, at the median rate
    std::optional<double> of_peak; // share of the measured f32 peak, if this peak limits all
                                   // products (f32_peak_limits())
    // The peak of cache plus policy while the prompt was read.
    uint64_t held_peak_bytes = 0;
};

struct DecodeResult {
    int64_t depth = 0, tokens = 0;
    int64_t sequences = 1;        // that took steps together, `tokens` each
    Spread rate;                  // tokens per second, of all sequences together
    std::optional<double> of_one; // median over the repeats of the ratio to one sequence at the
                                  // same depth, if that was measured
    uint64_t kv_bytes = 0;        // of the caches at the end
    uint64_t policy_bytes = 0;    // of the policy beside the caches at the end
    uint64_t held_peak_bytes = 0; // the peak of caches plus policy, from the prompt on
    uint64_t kv_read_per_token =
        0; // bytes of K and V that attention reads, averaged over the tokens
    double bytes_per_second =
        0;        // weights once a step, and K, V of each sequence, at the median rate
    Spread probe; // memory bandwidth, bytes per second, measured before each repeat; no samples: no
                  // probe
    std::optional<double> of_bandwidth; // median over the repeats of their own ratios
    double submits = 0, waits = 0;      // per step, which is a token of each sequence
};

// A pass op by op.
struct OpsResult {
    bool is_prefill = false;
    int64_t tokens = 0, depth = 0; // taken in; in the cache before
    double seconds = 0; // for as many tokens at the median rate, when nothing was watched
    double read = 0;    // memory bandwidth, bytes per second, measured right before; 0: no probe
    std::vector<OpTotal> ops; // in the order in which they first ran
};

struct BenchReport {
    std::string commit; // that the program was built from: who knows it fills it in; empty: unknown
    // The machine and what ran on it.
    std::string cpu, backend, device, description, sync;
    uint32_t threads = 0;      // of the host's team: the probes used them all
    uint64_t memory_bytes = 0; // that this process may use
    std::string model, architecture, weights, policy;
    uint64_t parameters = 0, weight_bytes_per_token = 0, weight_bytes = 0, kv_bytes_per_token = 0;
    uint64_t kv_window_bytes = 0; // the most bytes in layers that hold only their window
    keel_dtype key_dtype = KEEL_DTYPE_NONE, value_dtype = KEEL_DTYPE_NONE;
    uint64_t fallbacks = 0; // planned ops, the cache's too, that the backend does not run itself
    double load_seconds = 0;
    uint64_t peak_resident_bytes = 0;
    int64_t repeat = 0;
    // The probes.
    std::string probe_isa;                      // empty: no probes
    uint64_t probe_bytes = 0;                   // of the buffer
    double read_plain = 0, read_prefetched = 0; // bytes per second, medians over all repeats
    double peak_flops = 0;                      // f32 multiply-adds
    std::vector<PrefillResult> prefill;
    std::vector<DecodeResult> decode;
    std::vector<OpsResult> ops; // prefill, then decode
};
// Tokens in the cache before a decode at a depth: a model's first step is a prompt, so depth 0
// begins behind one.
int64_t bench_tokens_before(int64_t depth);

// Operations of a prompt of n tokens: two for each weight of the matrices that a token meets (the
// output projection for the last one alone), and causal attention over n slots.
double prefill_flop(const ModelConfig &model, int64_t tokens);

// Measures. Throws Error(usage) for lengths that the context does not hold, Error(resource) for
// what the cache's cap does not.
BenchReport run_bench(Pipeline &pipeline, const BenchOptions &options);

} // namespace keel
