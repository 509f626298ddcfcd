#pragma once

#include "conformance/side.hpp"
#include "conformance/tensor.hpp"

#include <deque>
#include <functional>

namespace keel::conformance {

constexpr int none = -1;

// A layer's cache in a scene: places of its tensors.
struct CacheSpec {
    int k = none, v = none, table = none, lengths = none, positions = none;
    uint32_t block_slots = 0, kv_heads = 0;
    int64_t max_length = 0;
};

struct WeightSpec {
    std::vector<int> sources; // places of 2-D tensors without gaps
    keel_join join = KEEL_JOIN_ROWS;
    uint32_t use = KEEL_USE_MATMUL;
    uint32_t max_m = 1;
};

// What one case works on, the same for both sides. Tensors, caches and weights are named by their
// place.
struct Scene {
    std::vector<Tensor> tensors;
    std::vector<CacheSpec> caches;
    std::vector<WeightSpec> weights;

    int add(Tensor t);
    int add(CacheSpec cache);
    int add(WeightSpec weight);
};

// The dtypes that a KV cache may have.
inline constexpr keel_dtype cache_dtypes[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                              KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};

struct CacheShape {
    std::vector<int32_t> lengths; // one per KV head
    int64_t head_dim = 64, v_head_dim = 64;
    uint32_t block_slots = 16;
    keel_dtype k_dtype = KEEL_DTYPE_F32, v_dtype = KEEL_DTYPE_F32;
    int64_t spare = 0;  // slots without content that have blocks, beyond the longest head
    bool empty = false; // contents are 0xFF: an op will write them
};
// Blocks in scrambled order, spare ones among them; slots beyond a head's length and blocks in
// nobody's table are NaN.
int add_cache(Scene &scene, Rng &rng, const CacheShape &shape);

// How args are handed over; each must make no difference.
struct Manner {
    bool planned = false;       // op_plan first, and the call with its plan
    bool longer = false;        // the args come from a newer peer: more bytes, filled with rubbish
    uint64_t more_features = 0; // bits that the callee does not know
    bool larger = false;        // the plan is of larger args than the call: LargerPlan
};

// A scene placed on one side, ready for calls.
class Stage {
  public:
    Stage(Side &side, const Scene &scene, Manner manner);
    ~Stage();
    Stage(const Stage &) = delete;
    Stage &operator=(const Stage &) = delete;

    const keel_tensor *tensor(int place) const {
        return place == none ? nullptr : &tensors_[place];
    }
    const keel_kv_view *cache(int place) const { return &caches_[place]; }
    keel_weight *
    weight(int place); // prepared at first use; NULL if the backend takes no such weight
    Side &side() { return side_; }

    // Plans (by manner) and calls. The args lie at the end of a page, so that reading beyond them
    // faults.
    template <typename Args> keel_status run(keel_op op, Args args) {
        return run_bytes(op, &args, sizeof(Args));
    }

    std::vector<uint8_t> read(int place);
    const std::string &kernel() const { return kernel_; } // of the last plan
    bool refused() const { return refused_; }             // a plan, weight or call said UNSUPPORTED
    int calls() const { return calls_; }                  // of ops, refused or not
    bool planned_unknown() const {
        return planned_unknown_;
    } // op_plan took more_features for granted

  private:
    keel_status run_bytes(keel_op op, void *args, uint32_t size);

    Side &side_;
    const Scene &scene_;
    Manner manner_;
    std::vector<keel_buffer *> buffers_;
    std::deque<keel_tensor> tensors_;
    std::deque<keel_kv_view> caches_;
    std::vector<keel_weight *> weights_;
    std::vector<keel_plan *> plans_;
    std::string kernel_;
    bool refused_ = false;
    int calls_ = 0;
    bool planned_unknown_ = false;
};

// Memory that ends at a page which may not be touched.
class GuardedPage {
  public:
    GuardedPage();
    ~GuardedPage();
    GuardedPage(const GuardedPage &) = delete;
    GuardedPage &operator=(const GuardedPage &) = delete;
    // `bytes` bytes that end at the guard, or as near before it as an alignment of 8 allows.
    void *last(uint64_t bytes);

  private:
    void *pages_;
    uint64_t page_;
};

} // namespace keel::conformance
