#include "reference/check.hpp"

#include <bit>

namespace keel::reference {
namespace {

bool is_float(keel_dtype t) {
    return t == KEEL_DTYPE_F32 || t == KEEL_DTYPE_F16 || t == KEEL_DTYPE_BF16;
}

bool is_in(keel_dtype t, Types types) {
    switch (types) {
    case types_f32: return t == KEEL_DTYPE_F32;
    case types_float: return is_float(t);
    case types_weight: return is_float(t) || t == KEEL_DTYPE_Q8_0 || t == KEEL_DTYPE_Q4_0;
    case types_i32: return t == KEEL_DTYPE_I32;
    case types_number: return t == KEEL_DTYPE_F32 || t == KEEL_DTYPE_I32;
    case types_any: return keel_dtype_block(t) != 0 && keel_dtype_weights_only(t) == 0;
    case types_matrix: return is_in(t, types_weight) || keel_dtype_weights_only(t) != 0;
    }
    return false;
}

std::string sizes(const int64_t *shape, size_t rank) {
    std::string text = "[";
    for (size_t i = 0; i < rank; ++i) {
        if (i != 0) text += ", ";
        text += shape[i] == any_size ? std::string("*") : std::to_string(shape[i]);
    }
    return text + "]";
}

} // namespace

void need_that(bool fact, const char *what) {
    if (!fact) refuse(KEEL_E_INVALID_ARG, what);
}

void need(const keel_tensor *t, const char *name, Types types) {
    if (t == nullptr) refuse(KEEL_E_INVALID_ARG, std::string(name) + " is missing");
    if (t->rank < 1 || t->rank > KEEL_MAX_RANK) {
        refuse(KEEL_E_INVALID_ARG,
               std::string(name) + " has rank " + std::to_string(t->rank) + ", expected 1 to 4");
    }
    if (!is_in(t->dtype, types)) {
        refuse(KEEL_E_UNSUPPORTED, std::string(name) + " is " + keel_dtype_name(t->dtype) +
                                       (keel_dtype_weights_only(t->dtype) != 0
                                            ? ", a type that only weights can have"
                                            : ", which the op does not accept for this tensor"));
    }
    for (uint32_t i = 0; i < t->rank; ++i) {
        if (t->shape[i] < 0)
            refuse(KEEL_E_INVALID_ARG, std::string(name) + " has a negative dimension");
    }
    if (t->shape[t->rank - 1] % keel_dtype_block(t->dtype) != 0) {
        refuse(KEEL_E_INVALID_ARG, std::string(name) +
                                       " has rows that do not consist of whole blocks of " +
                                       keel_dtype_name(t->dtype));
    }
}

void need(const keel_tensor *t, const char *name, Types types, Shape shape) {
    need(t, name, types);
    bool fits = t->rank == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
        fits = shape.begin()[i] == any_size || shape.begin()[i] == t->shape[i];
    }
    if (!fits) {
        refuse(KEEL_E_INVALID_ARG, std::string(name) + " is " + sizes(t->shape, t->rank) +
                                       ", expected " + sizes(shape.begin(), shape.size()));
    }
}

void need_same_shape(const keel_tensor *a, const keel_tensor *b, const char *what) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; ++i) same = a->shape[i] == b->shape[i];
    if (!same) refuse(KEEL_E_INVALID_ARG, std::string(what) + " differ in shape");
}

void need_same_dtype(const keel_tensor *a, const keel_tensor *b, const char *what) {
    if (a->dtype != b->dtype) refuse(KEEL_E_INVALID_ARG, std::string(what) + " differ in dtype");
}

void need_positions(const keel_tensor *t, const char *name, int64_t m, int64_t kv_heads) {
    if (t != nullptr && t->rank == 2) {
        need(t, name, types_i32, {m, kv_heads});
    } else {
        need(t, name, types_i32, {m});
    }
}

void need_tables(const keel_rope_tables *tables, int64_t head_dim) {
    need_that(tables != nullptr, "tables are missing");
    need_that(tables->rot % 2 == 0 && tables->rot <= head_dim,
              "tables.rot is odd or larger than the head");
    if (tables->mode != KEEL_ROPE_HALF_SPLIT && tables->mode != KEEL_ROPE_INTERLEAVED) {
        refuse(KEEL_E_UNSUPPORTED, "tables.mode " + std::to_string(tables->mode) + " is not known");
    }
    need(tables->cos, "tables.cos", types_f32, {any_size, tables->rot / 2});
    need(tables->sin, "tables.sin", types_f32, {tables->cos->shape[0], tables->rot / 2});
    need_that(tables->cos->shape[0] > 0, "tables have no rows");
}

void need_cache(const keel_kv_view *kv, const char *name) {
    need_that(kv != nullptr, "the cache view is missing");
    const auto part = [&](const char *member) { return std::string(name) + "." + member; };
    need_that(std::has_single_bit(kv->block_slots), "block_slots is no power of two");
    need(kv->k, part("k").c_str(), types_weight, {any_size, kv->block_slots, any_size});
    need(kv->v, part("v").c_str(), types_weight, {any_size, kv->block_slots, any_size});
    need(kv->block_table, part("block_table").c_str(), types_i32, {kv->kv_heads, any_size});
    need(kv->lengths, part("lengths").c_str(), types_i32, {kv->kv_heads});
    need(kv->positions, part("positions").c_str(), types_i32, {kv->kv_heads, any_size});
    need_that(kv->max_length >= 0, "max_length is negative");
}

int64_t last_dim(const keel_tensor *t) { return t->shape[t->rank - 1]; }

} // namespace keel::reference
