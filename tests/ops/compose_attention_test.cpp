// Tests of attention with scores on a backend that has only some of the needed ops.
#include "ops/executor.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <deque>

using namespace keel;
using namespace keel::test;

namespace {

constexpr int64_t m = 3, heads = 4, kv_heads = 2, dim = 8, slots = 16, length = 12;

constexpr uint64_t all_features =
    KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW | KEEL_ATTENTION_SOFTCAP | KEEL_ATTENTION_SCORES;

// One call of attention with scores on a device. Each head has one block, and its positions have
// gaps.
class ScoredAttention {
  public:
    explicit ScoredAttention(const std::shared_ptr<Device> &device)
        : device_(device), executor_(device, {false, nullptr, {}}) {
        cache_.k = floats({kv_heads, slots, dim}, 1).c();
        cache_.v = floats({kv_heads, slots, dim}, 2).c();
        cache_.block_table = ints({kv_heads, 1}, {1, 0}).c();
        cache_.lengths = ints({kv_heads}, {length, length - 4}).c();
        std::vector<int32_t> positions;
        for (int32_t j = 0; j < kv_heads * slots; ++j) positions.push_back(j % slots * 3 / 2);
        cache_.positions = ints({kv_heads, slots}, positions).c();
        cache_.block_slots = slots;
        cache_.kv_heads = kv_heads;
        cache_.max_length = length;
        scores_.out = floats({kv_heads, slots}, 3).c();
        scores_.window = 2;
        scores_.reduce_queries = KEEL_REDUCE_MEAN;
        scores_.reduce_group = KEEL_REDUCE_MAX;
        scores_.accumulate = 1;
        args_.features = all_features;
        args_.q = args_.out = floats({m, heads, dim}, 4).c(); // out is q, as in a graph
        args_.kv = &cache_;
        args_.q_positions = ints({m}, {14, 15, 16}).c();
        args_.scores = &scores_;
        args_.scale = 1;
        args_.softcap = 0.75F;
        args_.window = 9;
        op_ = executor_.plan(KEEL_OP_ATTENTION, args_, {});
    }
    ScoredAttention(const ScoredAttention &) = delete;
    ScoredAttention &operator=(const ScoredAttention &) = delete;

    const PlannedOp &op() const { return *op_; }
    bool any_fallback() const { return executor_.any_fallback(); }
    void run() { executor_.run(*op_, args_); }
    // Returns the output, followed by the scores.
    std::vector<float> results() const {
        std::vector<float> all;
        for (const Tensor &t : tensors_) {
            if (t.c() != args_.out && t.c() != scores_.out) continue;
            const std::vector<float> values = t.read<float>();
            all.insert(all.end(), values.begin(), values.end());
        }
        return all;
    }

  private:
    const Tensor &keep(keel_dtype dtype, const std::vector<int64_t> &s, const void *values) {
        const auto kind = KEEL_BUFFER_HOST_VISIBLE;
        tensors_.push_back(s.size() == 1 ? Tensor::allocate(*device_, dtype, {s[0]}, kind)
                           : s.size() == 2
                               ? Tensor::allocate(*device_, dtype, {s[0], s[1]}, kind)
                               : Tensor::allocate(*device_, dtype, {s[0], s[1], s[2]}, kind));
        tensors_.back().write(values);
        return tensors_.back();
    }
    const Tensor &floats(const std::vector<int64_t> &shape, int seed) {
        size_t n = 1;
        for (const int64_t size : shape) n *= static_cast<size_t>(size);
        std::vector<float> values(n);
        for (size_t i = 0; i < n; ++i)
            values[i] = static_cast<float>(std::sin(static_cast<double>(i * 7 + 13) * seed));
        return keep(KEEL_DTYPE_F32, shape, values.data());
    }
    const Tensor &ints(const std::vector<int64_t> &shape, const std::vector<int32_t> &values) {
        return keep(KEEL_DTYPE_I32, shape, values.data());
    }

    std::shared_ptr<Device> device_;
    Executor executor_;
    std::deque<Tensor> tensors_;
    keel_kv_view cache_ = {KEEL_HEADER(keel_kv_view)};
    keel_scores scores_ = {KEEL_HEADER(keel_scores)};
    keel_attention_args args_ = {KEEL_HEADER(keel_attention_args)};
    OpHandle op_;
};

std::vector<float> expected_results() {
    WrappingBackend whole;
    ScoredAttention native(whole.open());
    REQUIRE(native.op().rung() == Rung::native);
    native.run();
    return native.results();
}

bool is_scored(keel_op op, const keel_op_args *args) {
    return op == KEEL_OP_ATTENTION && (args->features & KEEL_ATTENTION_SCORES) != 0;
}

} // namespace

TEST_CASE("attention with scores, a window and a soft cap is composed of two ops") {
    const std::vector<float> expected = expected_results();
    WrappingBackend w;
    w.asynchronous = true;
    w.refuse_plan = is_scored;
    ScoredAttention composed(w.open());
    CHECK(composed.op().rung() == Rung::composed);
    CHECK(composed.op().kernel() == "attention_scores + attention");
    CHECK_FALSE(composed.any_fallback());
    composed.run();
    CHECK(composed.results() == expected);
}

TEST_CASE("attention falls back if the backend's scores have neither window nor soft cap") {
    const std::vector<float> expected = expected_results();
    for (const uint64_t unknown : {KEEL_SCORES_WINDOW, KEEL_SCORES_SOFTCAP}) {
        WrappingBackend w;
        w.refuse_plan = [&](keel_op op, const keel_op_args *args) {
            const bool is_new = op == KEEL_OP_ATTENTION_SCORES && (args->features & unknown) != 0;
            return is_new || is_scored(op, args);
        };
        ScoredAttention other(w.open());
        CHECK(other.op().rung() == Rung::reference);
        CHECK(other.any_fallback());
        other.run();
        CHECK(other.results() == expected);
    }
}
