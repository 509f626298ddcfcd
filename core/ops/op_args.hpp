#pragma once

#include <keel/backend.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace keel {

inline constexpr keel_op op_count = KEEL_OP_TOP_K_ROWS; // ids are 1..op_count

const char *op_name(keel_op op); // "matmul"
bool has_op(const keel_backend &table, keel_op op);
// Calls the op's slot, which must not be NULL.
keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx, const keel_op_args *args);

// A deep copy of an op's args, so that tensors can be exchanged for others (on another device, in another place) without touching
// the caller's. `args` must be of the op's type.
class ArgsCopy {
  public:
    enum class Role { in, out, in_out };
    struct Slot {
        const keel_tensor **tensor; // inside the copy; never NULL, and neither is what it points to
        Role role;
        const char *name; // "x", "kv.k"
    };

    ArgsCopy(keel_op op, const keel_op_args *args);
    ArgsCopy(const ArgsCopy &) = delete;
    ArgsCopy &operator=(const ArgsCopy &) = delete;

    keel_op op() const { return op_; }
    keel_op_args *args() { return reinterpret_cast<keel_op_args *>(storage_.data()); }
    template <typename Args>
    Args &as() {
        return *reinterpret_cast<Args *>(storage_.data());
    }
    std::span<const Slot> tensors() const { return {slots_.data(), n_slots_}; }
    keel_weight **weight() { return weight_; } // where the args name a weight's handle, else NULL
    const keel_tensor **weight_tensor() { return weight_tensor_; }
    // Appends all that the call depends on, tensors included. Two copies at the same address give the same bytes for the same call. Of
    // no use afterwards.
    void spend(std::vector<std::byte> &out);

  private:
    void add(const keel_tensor *&tensor, Role role, const char *name);
    const keel_kv_view *copy_kv(const keel_kv_view *view, keel_kv_view &to, Role role,
                                const char *const (&names)[5]);
    void copy_tables(const keel_rope_tables *&tables);
    void copy_scores(const keel_scores *&scores);
    void visit_linear(keel_op op);
    void visit_attention(keel_op op);
    void visit_policy(keel_op op);

    static constexpr size_t max_sides = 16;
    keel_op op_;
    alignas(16) std::array<std::byte, 256> storage_{};
    keel_kv_view kv_[2]{};
    keel_rope_tables tables_{};
    keel_scores scores_{};
    std::array<const keel_tensor *, max_sides> sides_{};
    std::array<Slot, 40> slots_{};
    size_t n_slots_ = 0;
    keel_weight **weight_ = nullptr;
    const keel_tensor **weight_tensor_ = nullptr;
};

// A template of an op's args that can be kept: a deep copy, its tensors' descriptors included, without buffers. What was planned with it
// can be planned again elsewhere when the caller's own is long gone.
class ArgsTemplate {
  public:
    ArgsTemplate(keel_op op, const keel_op_args *args);
    ArgsTemplate(const ArgsTemplate &) = delete;
    ArgsTemplate &operator=(const ArgsTemplate &) = delete;

    keel_op_args *args() { return copy_.args(); }

  private:
    ArgsCopy copy_;
    std::vector<keel_tensor> tensors_;
};

// Makes the args of an op with a weight name none. Other ops are left alone.
void clear_weight(keel_op op, keel_op_args *args);

} // namespace keel
