// A weight taken over by the backend, and plain tensors seen as one.
#pragma once

#include "context.hpp"
#include "kernels/linear.hpp"
#include "weight_slab.hpp"

// Quantized types: repacked, rows interleaved, so that decode is one stream of whole vectors. 16-bit types: copied into large pages where
// parameter `copy` has it so. Others: read where they lie.
struct keel_weight {
    keel_cpu::WeightView view;
    keel_cpu::Memory packed; // interleaved groups, or copied rows; empty where the host's mapping is used
    keel_cpu::WeightSlab *slab;
    keel_cpu::Memory sources; // rows: the RowSource array, which leads into `packed` where they were copied
    uint32_t use;
};

namespace keel_cpu {

// Whether a description makes sense: types and shapes; with `has_rows` also that the sources lie inside their mappings. Fills `type`.
keel_status check_weight(keel_ctx *ctx, const keel_weight_desc *desc, bool has_rows, WeightType &type);

// Whether weight_prepare takes such a weight into the interleaved layout.
bool is_interleaved(WeightType type, uint32_t use);

// Groups of the interleaved layout that a view's rows make, and the bytes of one.
int64_t groups_of(const WeightView &view, int64_t group);
int64_t group_bytes_of(const WeightView &view, int64_t group);

// A weight without rows yet: the joined shape of a description. NULL: no memory.
keel_weight *new_weight(keel_ctx *ctx, const keel_weight_desc *desc, WeightType type);

// Takes w->view's rows, which lie as rows or in groups of from_group, into groups as the context's kernels want them, in memory of its own.
keel_status interleave(keel_ctx *ctx, keel_weight *w, int64_t from_group);

// False for a dtype that weights do not have.
bool weight_type_of(keel_dtype dtype, WeightType &type);

// A plain [n, k] tensor as a weight; `source` is written and must live as long as the view.
bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view);

} // namespace keel_cpu
