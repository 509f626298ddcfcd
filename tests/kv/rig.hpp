#pragma once

#include "kv/evict/cache_manager.hpp"
#include "ops/executor.hpp"

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace keel::test {

// Devices to run the KV tests on: "reference" (reserves address space), "copying" (the reference
// without reserve, so that arenas grow by copying), "cpu" (the CPU plugin, where it was built).
std::vector<std::string> kv_devices();
void need_cpu_plugin(); // skips the case if it was not built
std::shared_ptr<Executor> open_executor(const std::string &device);

// Keeps the saved state of a cache.
struct Memory final : StateWriter {
    std::vector<std::byte> bytes;
    void write(const void *data, size_t n) override {
        const auto *p = static_cast<const std::byte *>(data);
        bytes.insert(bytes.end(), p, p + n);
    }
};

// The shape of most tests: 2 layers, 4 query heads on 2 KV heads of 32 elements, blocks of 8 slots.
KvShape kv_shape(int64_t max_slots, keel_dtype dtype, uint32_t sequences = 1);

// Keys and values of made-up tokens. Row t, layer l, head h depends on nothing but (t, l, h), so
// any cache can be filled with any tokens, and what it should hold is known. With frequencies a key
// is rotated by its position, in float64.
class Tokens {
  public:
    explicit Tokens(const KvShape &shape, std::vector<double> frequencies = {})
        : shape_(shape), frequencies_(std::move(frequencies)) {}

    std::vector<float> key(int64_t token, uint32_t layer, uint32_t head, int64_t position) const;
    std::vector<float> value(int64_t token, uint32_t layer, uint32_t head) const;
    // Queries of all heads of one token, [heads, head_dim].
    std::vector<float> query(int64_t seed, int64_t position) const;
    const std::vector<double> &frequencies() const { return frequencies_; }

  private:
    void rotate(float *row, int64_t position) const;
    std::vector<float> noise(uint64_t seed, size_t n) const;

    KvShape shape_;
    std::vector<double> frequencies_;
};

// Writes and reads caches through a device's ops.
class Rig {
  public:
    Rig(const std::string &device, const KvShape &shape, std::vector<double> frequencies = {});

    Executor &executor() { return *executor_; }
    const Tokens &tokens() const { return tokens_; }
    std::unique_ptr<KvCache> make_cache();
    PlannedOp &gather() { return *gather_; }

    // Writes K, V and positions of tokens into the last slots of all layers; the slots exist.
    // position[i] is token[i]'s.
    void write(KvCache &cache, std::span<const int64_t> tokens, std::span<const int32_t> positions);
    // append() and write() of tokens whose number is their position.
    void feed(KvCache &cache, int64_t first, int64_t n);
    // Writes one head of one layer only, from slot 0: for building a cache with ragged heads from
    // scratch.
    std::vector<float> attention(KvCache &cache, uint32_t layer, std::span<const float> query);
    std::vector<float>
    keys(KvCache &cache,
         uint32_t layer); // [kv_heads, longest, head_dim] as the cache holds them
    std::vector<int32_t> device_positions(KvCache &cache, uint32_t layer, uint32_t head);

    // Attention over the listed tokens, in float64, from the tokens themselves. Lists and positions
    // per KV head.
    std::vector<double> expected(uint32_t layer, std::span<const float> query,
                                 const std::vector<std::vector<int64_t>> &tokens,
                                 const std::vector<std::vector<int64_t>> &positions) const;

  private:
    KvShape shape_;
    std::shared_ptr<Executor> executor_;
    Tokens tokens_;
    OpHandle append_, attention_, keys_, gather_;
};

double largest_difference(std::span<const float> a, std::span<const double> b);
double largest_difference(std::span<const float> a, std::span<const float> b);

} // namespace keel::test
