#pragma once

#include "numbers/convert.hpp"

#include <cstddef>
#include <functional>
#include <string_view>

namespace keel {

// Runs body(task) for each task in [0, tasks), in any order and on any threads; returns when all
// have ended. Empty: here.
using ParallelFor = std::function<void(size_t tasks, const std::function<void(size_t task)> &body)>;

// Rows of `from` [rows, columns] as rows of `to`, contiguous both. Throws Error(input) naming
// `what` if columns are no multiple of the target's block, or, with the row, where
// convert_from_f32() fails. Allocates a few KiB per task.
void convert_rows(keel_dtype from, const void *src, keel_dtype to, void *dst, size_t rows,
                  size_t columns, std::string_view what, const ParallelFor &parallel = {});

// The same from values that `read` gives: values at .. at + count of a row, as f32; called on any
// threads. `at` and `count` are multiples of 256, but for a row's last piece.
using ReadValues = std::function<void(size_t row, size_t at, size_t count, float *values)>;
void convert_rows(const ReadValues &read, keel_dtype to, void *dst, size_t rows, size_t columns,
                  std::string_view what, const ParallelFor &parallel = {});

} // namespace keel
