#include "device/kept_weight.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cstring>

namespace keel {
namespace {

// A shape as the C side wants it. The description points into this.
class ShapeDesc {
  public:
    explicit ShapeDesc(const WeightShape &shape) : parts_(shape.rows.size()) {
        for (size_t i = 0; i < parts_.size(); ++i) {
            parts_[i] = {KEEL_HEADER(keel_weight_source)};
            parts_[i].dtype = shape.dtype;
            parts_[i].rows = shape.rows[i];
            parts_[i].cols = shape.cols;
            pointers_.push_back(&parts_[i]);
        }
        desc_.sources = pointers_.data();
        desc_.n_sources = static_cast<uint32_t>(pointers_.size());
        desc_.join = KEEL_JOIN_ROWS;
        desc_.use = shape.use;
        desc_.max_m = shape.max_m;
    }
    ShapeDesc(const ShapeDesc &) = delete;
    ShapeDesc &operator=(const ShapeDesc &) = delete;
    const keel_weight_desc *c() const { return &desc_; }

  private:
    std::vector<keel_weight_source> parts_;
    std::vector<const keel_weight_source *> pointers_;
    keel_weight_desc desc_ = {KEEL_HEADER(keel_weight_desc)};
};

keel_laid_out laid_out(const KeptWeight &kept) {
    keel_laid_out laid = {KEEL_HEADER(keel_laid_out)};
    laid.name = kept.layout.c_str();
    laid.mapping = kept.mapping;
    laid.mapping_bytes = kept.mapping_bytes;
    laid.offset = kept.offset;
    laid.bytes = kept.bytes;
    return laid;
}

// A name goes into files and messages.
bool is_layout_name(std::string_view name) {
    return std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

} // namespace

std::optional<WeightLayouts> WeightLayouts::of(Device &device) {
    const void *theirs = device.extension(KEEL_EXT_WEIGHT_LAYOUT);
    if (theirs == nullptr) return std::nullopt;
    keel_weight_layout table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_weight_layout, take)) != KEEL_OK ||
        table.describe == nullptr || table.keep == nullptr || table.take == nullptr) {
        log().warn("backend {}: its {} is too small, of another ABI major or has empty slots; it is not used",
                   device.plugin(), KEEL_EXT_WEIGHT_LAYOUT);
        return std::nullopt;
    }
    return WeightLayouts(device, table);
}

WeightLayouts::Layout WeightLayouts::describe(const WeightShape &shape) const {
    const ShapeDesc desc(shape);
    keel_weight_layout_info info = {KEEL_HEADER(keel_weight_layout_info)};
    device_->require_alive("weight_layout: describe");
    device_->check("weight_layout: describe",
                   [&] { return table_.describe(device_->ctx(), desc.c(), &info); });
    info.name[sizeof info.name - 1] = 0;
    Layout layout{info.name, info.bytes, std::max<uint64_t>(info.align, 1)};
    const bool is_power = (layout.align & (layout.align - 1)) == 0;
    if (!is_layout_name(layout.name) || (layout.bytes == 0) != layout.name.empty() || !is_power ||
        layout.align > uint64_t{1} << 20)
        throw_error(ErrorKind::plugin, "backend {}: its weight layout '{}' of {} bytes makes no sense",
                    device_->plugin(), printable(layout.name), layout.bytes);
    return layout;
}

void WeightLayouts::keep(const keel_weight *weight, uint64_t offset, void *dst, uint64_t n) const {
    device_->require_alive("weight_layout: keep");
    device_->check("weight_layout: keep",
                   [&] { return table_.keep(device_->ctx(), weight, offset, dst, n); });
}

keel_weight *WeightLayouts::take(const WeightShape &shape, const KeptWeight &kept, std::string &why) const {
    const ShapeDesc desc(shape);
    const keel_laid_out laid = laid_out(kept);
    keel_weight *weight = nullptr;
    device_->require_alive("weight_layout: take");
    const keel_status status =
        device_->with_memory([&] { return table_.take(device_->ctx(), desc.c(), &laid, &weight); });
    if (status == KEEL_OK && weight != nullptr) return weight;
    if (status == KEEL_E_UNSUPPORTED) {
        why = take_message();
        return nullptr;
    }
    if (status == KEEL_E_INVALID_ARG)
        throw_error(ErrorKind::input, "{}: backend {}: {}; the file is damaged: make it anew", kept.place,
                    device_->plugin(), take_message());
    device_->fail(status == KEEL_OK ? KEEL_E_INTERNAL : status, kept.place);
}

bool WeightLayouts::rows(const WeightShape &shape, const KeptWeight &kept,
                         std::vector<std::byte> &out) const {
    if (table_.rows == nullptr || device_->is_lost()) return false;
    int64_t count = 0;
    for (const int64_t rows : shape.rows)
        count += rows;
    const ShapeDesc desc(shape);
    const keel_laid_out laid = laid_out(kept);
    out.resize(static_cast<uint64_t>(count) *
               keel_dtype_row_bytes(shape.dtype, static_cast<uint64_t>(shape.cols)));
    HostServices::drop_error();
    const keel_status status = table_.rows(device_->ctx(), desc.c(), &laid, 0, count, out.data());
    if (status == KEEL_OK) return true;
    if (status != KEEL_E_UNSUPPORTED) device_->fail(status, kept.place);
    HostServices::drop_error();
    return false;
}

} // namespace keel
