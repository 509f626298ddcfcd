#include "kv/evict/rerotation_ops.hpp"

namespace keel {

RerotationOps RerotationOps::plan(Executor &executor, const KvShape &shape,
                                  const CacheConfig &config, bool pristine) {
    RerotationOps ops;
    const KvTemplate kv(shape);
    const int64_t slots = shape.blocks_per_head() * shape.block_slots;
    const auto half = static_cast<int64_t>(config.rope_frequencies.size());
    const Tensor cos = Tensor::shape(KEEL_DTYPE_F32, {table_rows, half});
    const Tensor index = Tensor::shape(KEEL_DTYPE_I32, {shape.kv_heads, slots});
    keel_rope_tables tables = {KEEL_HEADER(keel_rope_tables)};
    tables.cos = tables.sin = cos.c();
    tables.mode = config.rope_mode;
    tables.rot = static_cast<uint32_t>(2 * half);
    keel_kv_rerotate_args rotation = {KEEL_HEADER(keel_kv_rerotate_args)};
    rotation.kv = kv.view();
    rotation.tables = &tables;
    rotation.row = rotation.new_positions = index.c();
    rotation.end = shape.max_slots;
    if (!pristine)
        ops.rerotate = executor.plan(KEEL_OP_KV_REROTATE, rotation, {.role = Role::kv_rerotation});
    // The length of a system prompt is unknown until a conversation begins, so the prefix can have
    // any length.
    const int64_t prefix =
        pristine || config.protect_system_prompt ? shape.max_slots : config.protect_prefix;
    if (prefix == 0) return ops;
    const Tensor copy = Tensor::shape(KEEL_DTYPE_F32, {shape.kv_heads, prefix, shape.head_dim});
    rotation.features = KEEL_REROTATE_SOURCE;
    rotation.source = copy.c();
    rotation.end = prefix;
    const Role role = pristine ? Role::kv_rerotation : Role::kv_prefix_rerotation;
    ops.restore = executor.plan(KEEL_OP_KV_REROTATE, rotation, {.role = role});
    keel_keys_args keys = {KEEL_HEADER(keel_keys_args)};
    keys.kv = kv.view();
    keys.out = copy.c();
    keys.end = prefix;
    ops.capture = executor.plan(KEEL_OP_KEY_PROJECT, keys, {.role = Role::kv_key_copy});
    if (!pristine) return ops;
    const Tensor codes = Tensor::shape(shape.key_dtype, {shape.kv_heads, slots, shape.head_dim});
    keel_move_args cast = {KEEL_HEADER(keel_move_args)};
    cast.out = codes.c();
    const Tensor same = Tensor::shape(KEEL_DTYPE_F32, {shape.kv_heads, slots, shape.head_dim});
    cast.x = same.c();
    ops.write_pristine = executor.plan(KEEL_OP_CAST, cast, {.role = Role::kv_key_copy});
    const Tensor ids = Tensor::shape(KEEL_DTYPE_I32, {slots}),
                 rows = Tensor::shape(shape.key_dtype, {slots, shape.head_dim}),
                 values = Tensor::shape(KEEL_DTYPE_F32, {slots, shape.head_dim});
    keel_embed_args embed = {KEEL_HEADER(keel_embed_args)};
    embed.ids = ids.c();
    embed.w = rows.c();
    embed.out = values.c();
    embed.scale = 1;
    ops.read_pristine = executor.plan(KEEL_OP_EMBED, embed, {.role = Role::kv_key_restore});
    return ops;
}

std::vector<const PlannedOp *> RerotationOps::list() const {
    std::vector<const PlannedOp *> out;
    for (const OpHandle *op : {&capture, &rerotate, &restore, &read_pristine, &write_pristine}) {
        if (*op) out.push_back(op->get());
    }
    return out;
}

} // namespace keel
