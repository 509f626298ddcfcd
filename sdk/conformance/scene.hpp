#pragma once

#include "conformance/side.hpp"
#include "conformance/tensor.hpp"

#include <deque>
#include <functional>

namespace keel::conformance {

constexpr int none = -1;

// A layer's cache in a scene: the indices of its tensors.
struct CacheSpec {
    int k = none, v = none, table = none, lengths = none, positions = none;
    uint32_t block_slots = 0, kv_heads = 0;
    int64_t max_length = 0;
};

struct WeightSpec {
    std::vector<int> sources; // indices of 2-D tensors without gaps
    keel_join join = KEEL_JOIN_ROWS;
    uint32_t use = KEEL_USE_MATMUL;
    uint32_t max_m = 1;
};

// The inputs of one case, the same for both sides. Tensors, caches and weights are named by their
// index.
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
    // number of slots without content, beyond the longest head, that have blocks
    int64_t spare = 0;
    bool empty = false; // the contents are 0xFF, because an op will write them
};
// Adds a cache whose blocks are in scrambled order, with unused blocks in between. Slots beyond a
// head's length and unused blocks are NaN.
int add_cache(Scene &scene, Rng &rng, const CacheShape &shape);

// Ways to pass the args of a call. None of them may change the result.
struct Manner {
    bool planned = false; // call op_plan first, then call with its plan
    // the args come from a newer peer: more bytes, with arbitrary content
    bool longer = false;
    uint64_t more_features = 0; // feature bits that the callee does not know
    bool larger = false;        // plan with larger args than those of the call: LargerPlan
};

// A scene placed in the memory of one side, ready for calls.
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
    weight(int place); // prepared at first use; NULL if the backend does not take this weight
    Side &side() { return side_; }

    // Plans (if the manner says so) and calls. The args end at the end of a page, so that reading
    // beyond them faults.
    template <typename Args> keel_status run(keel_op op, Args args) {
        return run_bytes(op, &args, sizeof(Args));
    }

    std::vector<uint8_t> read(int place);
    const std::string &kernel() const { return kernel_; } // kernel name of the last plan
    // a plan, weight or call returned UNSUPPORTED
    bool refused() const { return refused_; }
    // number of op calls, including refused ones
    int calls() const { return calls_; }
    bool planned_unknown() const { return planned_unknown_; } // op_plan accepted more_features

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

// Memory that ends at an inaccessible page.
class GuardedPage {
  public:
    GuardedPage();
    ~GuardedPage();
    GuardedPage(const GuardedPage &) = delete;
    GuardedPage &operator=(const GuardedPage &) = delete;
    // Returns `bytes` bytes that end at the guard page, or as near before it as an alignment of 8
    // allows.
    void *last(uint64_t bytes);

  private:
    void *pages_;
    uint64_t page_;
};

} // namespace keel::conformance
