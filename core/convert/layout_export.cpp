#include "convert/layout_export.hpp"

#include "base/error.hpp"
#include "graph/weights.hpp"

#include <algorithm>

namespace keel::gguf {
namespace {

constexpr uint64_t piece_bytes = uint64_t{16} << 20; // written at once

WeightLayouts layouts_of(Device &device) {
    auto layouts = WeightLayouts::of(device);
    if (!layouts) {
        throw_error(ErrorKind::input,
                    "backend {} has no layout to keep in a file ({}); leave out --layout native",
                    device.plugin(), KEEL_EXT_WEIGHT_LAYOUT);
    }
    return *layouts;
}

} // namespace

BlockMaker::BlockMaker(const ModelSource &source, Device &device, ParallelFor parallel)
    : source_(source), device_(device), parallel_(std::move(parallel)), layouts_(layouts_of(device)) {}

BlockPlan BlockMaker::plan(std::span<const WeightParts::Part> parts, int64_t cols, keel_dtype dtype,
                           uint32_t use, bool reordered) {
    BlockPlan plan;
    WeightShape shape{dtype, {}, cols, use, 512};
    uint64_t row_bytes = 0;
    for (const WeightParts::Part &part : parts) {
        shape.rows.push_back(part.rows);
        row_bytes +=
            static_cast<uint64_t>(part.rows) * keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols));
    }
    const WeightLayouts::Layout layout = layouts_.describe(shape);
    align_ = std::max(align_, layout.align);
    if (layout.name.empty() && !reordered) return plan;
    plan.entry.layout = layout.name.empty() ? std::string(rows_layout) : layout.name;
    plan.bytes = layout.name.empty() ? row_bytes : layout.bytes;
    plan.dtype = dtype;
    plan.cols = cols;
    plan.use = use;
    if (plan.bytes < row_bytes) {
        throw_error(ErrorKind::input,
                    "layout '{}' is smaller than the rows in it: it cannot be kept in a file",
                    plan.entry.layout);
    }
    for (const WeightParts::Part &part : parts) {
        plan.tensors.push_back(source_.find(part.tensor));
        plan.entry.matrices.push_back({stored_tensor_name(*source_.config().architecture, part.tensor),
                                       stored_type(dtype), part.rows, cols});
    }
    plan.entry.tensor = plan.entry.matrices.front().name + ".laid_out";
    return plan;
}

void BlockMaker::write(const BlockPlan &plan,
                       const std::function<void(std::span<const std::byte>)> &out) const {
    const std::shared_ptr<const ModelSource> source(std::shared_ptr<void>(), &source_);
    int64_t rows = 0;
    for (const TensorInfo *tensor : plan.tensors)
        rows += tensor->shape[0];
    const auto make = [&] {
        std::vector<WeightSource> sources;
        for (const TensorInfo *tensor : plan.tensors)
            sources.push_back(matrix_source(source, *tensor, plan.dtype, parallel_));
        return sources;
    };
    if (plan.entry.layout == rows_layout) {
        for (const WeightSource &rows_of : make())
            out({static_cast<const std::byte *>(rows_of.mapping) + rows_of.offset,
                 static_cast<uint64_t>(rows_of.rows) *
                     keel_dtype_row_bytes(plan.dtype, static_cast<uint64_t>(plan.cols))});
        return;
    }
    Weight weight(plan.entry.matrices.front().name, plan.dtype, rows, plan.cols, make, KEEL_JOIN_ROWS,
                  plan.use, 512);
    weight.prepare(device_);
    std::vector<std::byte> piece(std::min(piece_bytes, plan.bytes));
    for (uint64_t at = 0; at < plan.bytes; at += piece.size()) {
        const uint64_t n = std::min<uint64_t>(piece.size(), plan.bytes - at);
        layouts_.keep(weight.handle(device_), at, piece.data(), n);
        out({piece.data(), n});
    }
}

} // namespace keel::gguf
