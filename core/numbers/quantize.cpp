#include "numbers/quantize.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace keel {
namespace {

[[noreturn]] void no_such_weight_type(keel_dtype type) {
    throw_error(ErrorKind::internal, "weights of type {} cannot be converted",
                keel_dtype_name(type));
}

void check_columns(keel_dtype to, size_t multiple, size_t columns, std::string_view what) {
    if (columns % multiple != 0) {
        throw_error(ErrorKind::input,
                    "{}: rows of {} elements cannot be stored as {}: expected a multiple of {} "
                    "elements; use f16",
                    what, columns, keel_dtype_name(to), multiple);
    }
}

} // namespace

void convert_rows(keel_dtype from, const void *src, keel_dtype to, void *dst, size_t rows,
                  size_t columns, std::string_view what, const ParallelFor &parallel) {
    if (keel_dtype_block(from) == 0) no_such_weight_type(from);
    check_columns(to, std::max(keel_dtype_block(from), keel_dtype_block(to)), columns, what);
    const size_t in_bytes = keel_dtype_row_bytes(from, columns);
    const auto read = [&](size_t row, size_t at, size_t count, float *values) {
        const auto *in = static_cast<const std::byte *>(src) + row * in_bytes;
        convert_to_f32(from, in + keel_dtype_row_bytes(from, at), values, count);
    };
    convert_rows(read, to, dst, rows, columns, what, parallel);
}

void convert_rows(const ReadValues &read, keel_dtype to, void *dst, size_t rows, size_t columns,
                  std::string_view what, const ParallelFor &parallel) {
    if (keel_dtype_block(to) == 0) no_such_weight_type(to);
    check_columns(to, keel_dtype_block(to), columns, what);
    const size_t out_bytes = keel_dtype_row_bytes(to, columns);
    // the number of elements per piece: a multiple of every block size, and small enough that a
    // piece fits in the L1 cache
    constexpr size_t chunk = 2048;
    const size_t rows_per_task =
        std::max<size_t>(1, (size_t{1} << 18) / std::max<size_t>(columns, 1));
    const size_t tasks = (rows + rows_per_task - 1) / rows_per_task;
    std::atomic<size_t> bad_row{rows};

    const auto body = [&](size_t task) {
        std::vector<float> values(std::min(columns, chunk));
        for (size_t row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task);
             ++row) {
            auto *out = static_cast<std::byte *>(dst) + row * out_bytes;
            bool held = true;
            for (size_t at = 0; at < columns; at += chunk) {
                const size_t count = std::min(chunk, columns - at);
                read(row, at, count, values.data());
                held &=
                    convert_from_f32(to, values.data(), out + keel_dtype_row_bytes(to, at), count);
            }
            size_t first = bad_row.load();
            while (!held && row < first && !bad_row.compare_exchange_weak(first, row)) {
            }
        }
    };
    if (parallel) {
        parallel(tasks, body);
    } else {
        for (size_t task = 0; task < tasks; ++task) body(task);
    }
    if (bad_row < rows) {
        throw_error(ErrorKind::input,
                    "{}: row {} holds a value that {} cannot represent (NaN, infinity or out of "
                    "range); the weights are damaged",
                    what, bad_row.load(), keel_dtype_name(to));
    }
}

} // namespace keel
