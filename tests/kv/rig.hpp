#pragma once

#include "kv/evict/cache_manager.hpp"
#include "ops/executor.hpp"

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace keel::test {

// The devices on which the KV tests run. "reference" has RESERVE buffers. "copying" is the
// reference without RESERVE buffers, so arenas grow by copying. "cpu" is the CPU plugin, if it was
// built.
std::vector<std::string> kv_devices();
void need_cpu_plugin(); // skips the case if the CPU plugin was not built
std::shared_ptr<Executor> open_executor(const std::string &device);

// Stores the saved state of a cache in memory.
struct Memory final : StateWriter {
    std::vector<std::byte> bytes;
    void write(const void *data, size_t n) override {
        const auto *p = static_cast<const std::byte *>(data);
        bytes.insert(bytes.end(), p, p + n);
    }
};

// The shape in most tests: 2 layers, 4 query heads on 2 KV heads of 32 elements, blocks of 8 slots.
KvShape kv_shape(int64_t max_slots, keel_dtype dtype, uint32_t sequences = 1);

// Generated keys and values of tokens. A row depends only on token, layer and head, so tests can
// fill any cache with any tokens and know its expected content. If frequencies are given, a key is
// rotated by its position, in float64.
class Tokens {
  public:
    explicit Tokens(const KvShape &shape, std::vector<double> frequencies = {})
        : shape_(shape), frequencies_(std::move(frequencies)) {}

    std::vector<float> key(int64_t token, uint32_t layer, uint32_t head, int64_t position) const;
    std::vector<float> value(int64_t token, uint32_t layer, uint32_t head) const;
    // Returns the queries of all heads of one token, [heads, head_dim].
    std::vector<float> query(int64_t seed, int64_t position) const;
    const std::vector<double> &frequencies() const { return frequencies_; }

  private:
    void rotate(float *row, int64_t position) const;
    std::vector<float> noise(uint64_t seed, size_t n) const;

    KvShape shape_;
    std::vector<double> frequencies_;
};

// Writes and reads caches with the ops of a device.
class Rig {
  public:
    Rig(const std::string &device, const KvShape &shape, std::vector<double> frequencies = {});

    Executor &executor() { return *executor_; }
    const Tokens &tokens() const { return tokens_; }
    std::unique_ptr<KvCache> make_cache();
    PlannedOp &gather() { return *gather_; }

    // Writes K, V and positions of tokens to the last slots of all layers. The slots must exist.
    // position[i] belongs to tokens[i].
    void write(KvCache &cache, std::span<const int64_t> tokens, std::span<const int32_t> positions);
    // Does append() and write() for tokens whose numbers are their positions.
    void feed(KvCache &cache, int64_t first, int64_t n);
    // Writes one head of one layer, from slot 0 on. Used to build a cache with heads of different
    // length.
    std::vector<float> attention(KvCache &cache, uint32_t layer, std::span<const float> query);
    std::vector<float>
    keys(KvCache &cache,
         uint32_t layer); // [kv_heads, longest, head_dim], as stored in the cache
    std::vector<int32_t> device_positions(KvCache &cache, uint32_t layer, uint32_t head);

    // Computes attention over the listed tokens in float64, without the cache. Each KV head has its
    // own list and positions.
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
