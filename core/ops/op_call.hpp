#pragma once

#include "ops/op_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace keel {

// A call of an op as a value: the op, its args, and copies of all structs and tensor descriptors
// that they point to. The value outlives the caller's args and can be changed and compared.
// Buffers, weights and plans are not copied. The class has many functions because it gives access
// to the args of 31 ops: tensors, caches, tables, lists and numbers.
class OpCall {
  public:
    enum class Access : uint8_t { in, out, in_out };
    struct Operand {
        keel_tensor tensor;
        Access access;
        const char *name; // "x", "kv.k"
        // The caller's descriptor. It can be deleted already. Use the pointer only to check whether
        // two operands are the same tensor.
        const keel_tensor *given;
        uint16_t at; // used only by OpCall: the offset of the pointer to the tensor in the args
    };

    OpCall() = default;
    OpCall(keel_op op, const keel_op_args *args) { assign(op, args); }

    // Replaces the content, like a new OpCall, but reuses the memory. `args` must be of the op's
    // type.
    void assign(keel_op op, const keel_op_args *args);

    keel_op op() const { return op_; }
    // The pointer is valid until the call is moved, copied to or destroyed, or until its operands
    // change.
    keel_op_args *args();
    template <typename Args> Args &as() { return *reinterpret_cast<Args *>(args()); }
    // Returns the tensors that the args name, in the order of their members.
    std::span<Operand> tensors() { return operands_; }
    std::span<const Operand> tensors() const { return operands_; }

    bool takes_weight() const { return weight_at_ != none; }
    keel_weight *weight() const; // NULL: the args name none
    void set_weight(keel_weight *weight, const keel_tensor *shape);

    // Returns a copy without buffers and plan, for use as a template.
    OpCall without_memory() const;
    // Writes everything on which the call depends. Two calls have equal bytes if and only if they
    // request the same work from the backend.
    void bytes(std::vector<std::byte> &out) const;
    // Calls visit(handle) for each buffer, weight and plan that the call names.
    template <typename Visit> void list_handles(const Visit &visit) const {
        for (const Operand &operand : operands_)
            visit(static_cast<const void *>(operand.tensor.buffer));
        visit(static_cast<const void *>(weight()));
        visit(static_cast<const void *>(reinterpret_cast<const keel_op_args *>(body_.args)->plan));
    }

  private:
    static constexpr size_t max_sides = 16;
    static constexpr uint16_t none = UINT16_MAX;
    // The args, and what they point to.
    struct Body {
        alignas(16) std::byte args[256];
        keel_kv_view kv[2];
        keel_rope_tables tables;
        keel_scores scores;
        const keel_tensor *sides[max_sides];
    };
    static_assert(std::is_trivially_copyable_v<Body>);
    // A pointer inside body_ to another place in body_. Both places are stored as offsets, so that
    // calls can be copied.
    struct Link {
        uint16_t at, to;
    };

    template <typename Args> Args &member_as() { return *reinterpret_cast<Args *>(body_.args); }
    uint16_t offset(const void *member) const;
    void set_pointer(uint16_t at, const void *value);
    void add(const keel_tensor *const &tensor, Access access, const char *name);
    template <typename T> void link(const T *const &pointer, const T &target);
    void add_weight(keel_weight *const &weight, const keel_tensor *&tensor);
    void add_kv(const keel_kv_view *const &view, keel_kv_view &copy, Access access,
                const char *const (&names)[5]);
    void add_tables(const keel_rope_tables *const &tables);
    void add_scores(const keel_scores *const &scores);
    void visit_linear(keel_op op);
    void visit_attention(keel_op op);
    void visit_policy(keel_op op);

    keel_op op_ = 0;
    Body body_{};
    std::vector<Operand> operands_;
    std::array<Link, 4> link_{};
    size_t links_ = 0;
    uint16_t weight_at_ = none, weight_tensor_at_ = none; // offsets
};

// Removes the weight from the args of an op with a weight. Does nothing for other ops.
void clear_weight(keel_op op, keel_op_args *args);

} // namespace keel
