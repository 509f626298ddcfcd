#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/rows.hpp"

namespace keel::reference {

Rotation::Rotation(const keel_rope_tables &tables)
    : cos_(bind(tables.cos)), sin_(bind(tables.sin)), half_(tables.rot / 2),
      interleaved_(tables.mode == KEEL_ROPE_INTERLEAVED) {}

void Rotation::at_position(Row &x, int64_t position, bool inverse) const {
    const int64_t rows = cos_.outer[2];
    by_row(x, (position % rows + rows) % rows, inverse);
}

void Rotation::by_row(Row &x, int64_t row, bool inverse) const {
    if (row < 0 || row >= cos_.outer[2])
        refuse(KEEL_E_INVALID_ARG, "a rotation row is outside of the RoPE tables");
    for (int64_t i = 0; i < half_; ++i) {
        double &a = interleaved_ ? x[2 * i] : x[i];
        double &b = interleaved_ ? x[2 * i + 1] : x[i + half_];
        const double cos = cos_.number(row, i);
        const double sin = inverse ? -sin_.number(row, i) : sin_.number(row, i);
        const double rotated = a * cos - b * sin;
        b = b * cos + a * sin;
        a = rotated;
    }
}

void check_rope(const keel_rope_args &a) {
    need(a.x, "x", types_float, {any_size, any_size, any_size});
    need(a.out, "out", types_float);
    need_same_shape(a.x, a.out, "x and out");
    need_tables(a.tables, a.x->shape[2]);
    if (a.positions != nullptr && a.positions->rank == 2) {
        const int64_t kv_heads = a.positions->shape[1];
        need_positions(a.positions, "positions", a.x->shape[0], kv_heads);
        need_that(kv_heads > 0 && a.x->shape[1] % kv_heads == 0,
                  "the number of heads is not a multiple of the number of heads in positions");
    } else {
        need_positions(a.positions, "positions", a.x->shape[0], 0);
    }
}

// out[t, h, :] = x[t, h, :] rotated by positions[t], or by positions[t, its KV head]
void run_rope(const keel_rope_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    const Positions positions(a.positions);
    const Rotation rotation(*a.tables);
    const int64_t heads = a.x->shape[1];
    const int64_t group = a.positions->rank == 2 ? heads / a.positions->shape[1] : 1;
    for (int64_t t = 0; t < a.x->shape[0]; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
            Row row = load(x, x.row(t, h));
            rotation.at_position(row, positions.at(t, h / group),
                                 (a.features & KEEL_ROPE_INVERSE) != 0);
            store(out, out.row(t, h), row);
        }
    }
}

} // namespace keel::reference
