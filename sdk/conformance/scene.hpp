#pragma once

#include "conformance/side.hpp"
#include "conformance/tensor.hpp"

#include <deque>
#include <functional>

namespace keel::conformance {

constexpr int none = -1;

// The cache of one layer in a scene. The members are indices of tensors.
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
    uint32_t experts = 0; // with KEEL_USE_EXPERTS
};

// The inputs of one case, which are the same for both sides. Tensors, caches and weights are
// identified by their indices.
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
    std::vector<int32_t> lengths; // one length for each KV head
    int64_t head_dim = 64, v_head_dim = 64;
    uint32_t block_slots = 16;
    keel_dtype k_dtype = KEEL_DTYPE_F32, v_dtype = KEEL_DTYPE_F32;
    // Number of slots after the end of the longest head that have blocks but no content.
    int64_t spare = 0;
    bool empty = false; // true: the contents are 0xFF, because an op will write them
};
// Adds a cache whose blocks are in a random order, with unused blocks in between. Slots after a
// head's length and unused blocks contain NaN.
int add_cache(Scene &scene, Rng &rng, const CacheShape &shape);

// Different ways to pass the args of a call. All ways must give the same result.
struct Manner {
    bool planned = false; // true: op_plan is called first, and the op is called with its plan
    // True: the args come from a newer peer, so they have more bytes, with arbitrary content.
    bool longer = false;
    uint64_t more_features = 0; // feature bits that the callee does not know
    // true: the args of the plan are larger than the args of the call (LargerPlan)
    bool larger = false;
};

// A scene in the memory of one side, ready for calls.
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
    // prepares the weight at its first use; NULL if the backend does not support this weight
    weight(int place);
    Side &side() { return side_; }

    // Plans the op if manner_.planned is true, then calls it. The args end at the end of a page. So
    // the program crashes if a backend reads after their end.
    template <typename Args> keel_status run(keel_op op, Args args) {
        return run_bytes(op, &args, sizeof(Args));
    }

    std::vector<uint8_t> read(int place);
    const std::string &kernel() const { return kernel_; } // name of the kernel in the last plan
    // Returns true if a plan, weight or call returned UNSUPPORTED.
    bool refused() const { return refused_; }
    // Returns the number of op calls, including refused ones.
    int calls() const { return calls_; }
    // true: op_plan accepted more_features
    bool planned_unknown() const { return planned_unknown_; }

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

// Memory at whose end there is an inaccessible page.
class GuardedPage {
  public:
    GuardedPage();
    ~GuardedPage();
    GuardedPage(const GuardedPage &) = delete;
    GuardedPage &operator=(const GuardedPage &) = delete;
    // Returns `bytes` bytes that end at the guard page. The bytes are aligned to 8 bytes. If this
    // leaves a gap before the guard page, the gap is as small as possible.
    void *last(uint64_t bytes);

  private:
    void *pages_;
    uint64_t page_;
};

} // namespace keel::conformance
