#pragma once

#include "device/device.hpp"
#include "eval/stats/spread.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// Measures the extension keel.attention_dense/1 of a backend: attention over plain tensors, forward
// and backward. The tensors have random values.

struct AttentionBenchOptions {
    // Every combination of these values is a test. Queries and keys have the same length.
    std::vector<int64_t> lengths = {512, 1024, 2048, 4096};
    std::vector<int64_t> head_dims = {64, 128};
    std::vector<bool> causal = {true, false};
    std::vector<keel_dtype> dtypes = {KEEL_DTYPE_F32}; // of all tensors but the log-sum-exp
    int64_t batch = 1, heads = 8;
    int64_t kv_heads = 8; // a divisor of heads
    bool backward = true; // false: only forward
    int64_t repeat = 3;   // number of rounds; each round runs every test once
    // Receives the number of calls that are done, and of all calls. May throw to stop.
    std::function<void(uint64_t done, uint64_t total)> progress;
};

// One combination of the options.
struct AttentionShape {
    int64_t batch = 0, heads = 0, kv_heads = 0, head_dim = 0, length = 0;
    bool causal = false;
    keel_dtype dtype = KEEL_DTYPE_F32;

    // The usual count of the papers on FlashAttention: 4 * batch * heads * length^2 * head_dim,
    // half of it if causal.
    double forward_flop() const;
    // 2.5 times the count of forward.
    double backward_flop() const { return 2.5 * forward_flop(); }
    // Bytes of the tensors that a pass reads or writes.
    uint64_t forward_bytes() const;
    uint64_t backward_bytes() const;
    // Bytes of the logits of all heads in f32, which a simple implementation stores.
    uint64_t logits_bytes() const;
};

// The seconds of one pass. Each sample is one round.
struct AttentionTimes {
    Spread forward, backward, both; // backward and both have no samples if backward was not run
};

struct AttentionTest {
    AttentionShape shape;
    AttentionTimes seconds;
    // Bytes that the backend held after both passes, in addition to the tensors.
    uint64_t scratch_bytes = 0;
    std::string refused; // not empty: the backend refused the shape, for this reason
};

struct AttentionBenchReport {
    std::string backend, device, description, cpu;
    uint32_t threads = 0;  // of the host's thread team
    double peak_flops = 0; // f32 multiply-adds of the host's processor, in operations per second
    bool is_processor = false; // the device is the host's processor, so the peak applies
    std::string without;       // not empty: the backend has no dense attention; the reason
    bool has_backward = false;
    int64_t repeat = 0;
    std::vector<AttentionTest> tests;
};

// Opens a new context of the backend. Each test has a context of its own, so that the memory of one
// test does not count for another.
using OpenDevice = std::function<std::shared_ptr<Device>()>;

// Runs the measurement. Throws Error(usage) for options without sense, and the errors of the
// device.
AttentionBenchReport bench_attention(const OpenDevice &open, const AttentionBenchOptions &options);

} // namespace keel
