#pragma once

#include "numbers/convert.hpp"

#include <cstddef>
#include <functional>
#include <string_view>

namespace keel {

// Runs body(task) for each task in [0, tasks), in any order and on any threads. Returns when all
// tasks have ended. If this function object is empty, the tasks run on the calling thread.
using ParallelFor = std::function<void(size_t tasks, const std::function<void(size_t task)> &body)>;

// Converts rows of `from`, [rows, columns], to rows of `to`. src and dst are contiguous. Throws
// Error(input) that names `what` if `columns` is not a multiple of the target's block size. Throws
// Error(input) that names `what` and the row if convert_from_f32() fails. Allocates a few KiB per
// task.
void convert_rows(keel_dtype from, const void *src, keel_dtype to, void *dst, size_t rows,
                  size_t columns, std::string_view what, const ParallelFor &parallel = {});

// Supplies the values to convert. It writes the values at .. at + count - 1 of a row as f32. It can
// be called on any thread. `at` and `count` are multiples of 256, except `count` of the last piece
// of a row.
using ReadValues = std::function<void(size_t row, size_t at, size_t count, float *values)>;
void convert_rows(const ReadValues &read, keel_dtype to, void *dst, size_t rows, size_t columns,
                  std::string_view what, const ParallelFor &parallel = {});

} // namespace keel
