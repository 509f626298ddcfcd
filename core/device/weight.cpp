#include "device/weight.hpp"

#include "device/device.hpp"

namespace keel {

Weight::Weight(std::string name, keel_dtype dtype, int64_t rows, int64_t cols, Sources sources,
               keel_join join, uint32_t use, uint32_t max_m, uint32_t experts)
    : name_(std::move(name)), dtype_(dtype), rows_(rows), cols_(cols),
      make_sources_(std::move(sources)), join_(join), use_(use), max_m_(max_m), experts_(experts),
      shape_(Tensor::shape(dtype, {rows, cols})) {}

void Weight::check(const std::vector<WeightSource> &sources) const {
    int64_t rows = 0;
    for (const WeightSource &s : sources) {
        const uint32_t block = keel_dtype_block(s.dtype);
        if (s.cols != cols_ || s.dtype != dtype_ || block == 0 || s.cols <= 0 ||
            s.cols % block != 0 || s.rows < 0 || s.mapping == nullptr ||
            __builtin_add_overflow(rows, s.rows, &rows) ||
            (join_ == KEEL_JOIN_INTERLEAVE && s.rows != sources.front().rows)) {
            throw_error(ErrorKind::internal,
                        "weight {}: the tensors that form this weight differ in dtype or shape, or "
                        "are invalid, so Keel cannot join them",
                        name_);
        }
        uint64_t bytes = 0;
        const bool absurd = __builtin_mul_overflow(
            static_cast<uint64_t>(s.rows),
            keel_dtype_row_bytes(s.dtype, static_cast<uint64_t>(s.cols)), &bytes);
        if (absurd || s.offset > s.mapping_bytes || bytes > s.mapping_bytes - s.offset) {
            throw_error(ErrorKind::internal,
                        "weight {}: the data of a tensor ends after the end of the mapped file; "
                        "the file is cut short or damaged",
                        name_);
        }
    }
    if (rows != rows_ || sources.empty())
        throw_error(
            ErrorKind::internal,
            "weight {}: the tensors that form this weight have {} rows together, expected {}",
            name_, rows, rows_);
}

Weight::~Weight() {
    for (auto &[key, on] : on_) {
        if (on.handle == nullptr) continue;
        on.device->before_destroy(on.handle);
        on.device->table().weight_destroy(on.device->ctx(), on.handle);
    }
}

void Weight::prepare(Device &device) {
    if (is_ready(device)) return;
    device.require_alive("weight_prepare");
    const auto entry = on_.try_emplace(&device).first;
    OnDevice &on = entry->second;
    try {
        on.device = device.shared_from_this();
        if (sources_.empty()) {
            sources_ = make_sources_();
            check(sources_);
        }
        if (!prepare_native(device, on)) prepare_rows(device, on);
    } catch (...) {
        on_.erase(entry);
        if (!sources_needed()) sources_.clear();
        throw;
    }
    if (!sources_needed()) sources_.clear();
}

bool Weight::prepare_native(Device &device, OnDevice &on) {
    const keel_backend &table = device.table();
    if (table.weight_prepare == nullptr || table.weight_destroy == nullptr ||
        table.weight_info == nullptr)
        return false;
    std::vector<keel_weight_source> parts(sources_.size());
    std::vector<const keel_weight_source *> pointers;
    for (size_t i = 0; i < parts.size(); ++i) {
        const WeightSource &s = sources_[i];
        parts[i] = {KEEL_HEADER(keel_weight_source),
                    s.mapping,
                    s.mapping_bytes,
                    s.offset,
                    s.dtype,
                    0,
                    s.rows,
                    s.cols};
        pointers.push_back(&parts[i]);
    }
    keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc)};
    desc.sources = pointers.data();
    desc.n_sources = static_cast<uint32_t>(pointers.size());
    desc.join = join_;
    desc.use = use_;
    desc.max_m = max_m_;
    desc.experts = experts_;
    const keel_status status =
        device.with_memory([&] { return table.weight_prepare(device.ctx(), &desc, &on.handle); });
    if (status != KEEL_OK) on.handle = nullptr;
    if (status == KEEL_E_UNSUPPORTED) {
        take_message();
        return false;
    }
    if (status != KEEL_OK) device.fail(status, fmt::format("weight {}", name_));
    if (on.handle == nullptr)
        device.fail(
            KEEL_E_INTERNAL,
            fmt::format("weight {}: weight_prepare reported success, but returned no weight",
                        name_));
    read_info(device, on);
    return true;
}

void Weight::read_info(Device &device, OnDevice &on) {
    const keel_backend &table = device.table();
    on.info = {KEEL_HEADER(keel_weight_info)};
    HostServices::drop_error();
    const keel_status told = table.weight_info(device.ctx(), on.handle, &on.info);
    if (told != KEEL_OK) {
        table.weight_destroy(device.ctx(), on.handle);
        on.handle = nullptr;
        device.fail(told, fmt::format("weight {}", name_));
    }
    on.info.layout[sizeof on.info.layout - 1] = 0;
}

namespace {

// Calls visit(data, bytes) for each piece of the joined rows, in order.
template <typename Visit>
void for_each_piece(const std::vector<WeightSource> &sources, keel_join join, const Visit &visit) {
    const WeightSource &first = sources.front();
    const uint64_t row = keel_dtype_row_bytes(first.dtype, static_cast<uint64_t>(first.cols));
    const auto base = [](const WeightSource &s) {
        return static_cast<const std::byte *>(s.mapping) + s.offset;
    };
    if (join == KEEL_JOIN_ROWS) {
        for (const WeightSource &s : sources) visit(base(s), static_cast<uint64_t>(s.rows) * row);
        return;
    }
    for (int64_t r = 0; r < first.rows; ++r) {
        for (const WeightSource &s : sources) visit(base(s) + static_cast<uint64_t>(r) * row, row);
    }
}

} // namespace

// Makes a plain buffer with the joined rows, in the dtype of the sources.
void Weight::prepare_rows(Device &device, OnDevice &on) {
    on.tensor = Tensor::allocate(device, dtype_, {rows_, cols_});
    uint64_t to = on.tensor.offset();
    for_each_piece(sources_, join_, [&](const std::byte *data, uint64_t bytes) {
        on.tensor.buffer()->write(to, data, bytes);
        to += bytes;
    });
}

std::vector<std::byte> Weight::joined() const {
    const std::vector<WeightSource> sources = sources_.empty() ? make_sources_() : sources_;
    check(sources);
    std::vector<std::byte> all;
    all.reserve(static_cast<uint64_t>(rows_) *
                keel_dtype_row_bytes(dtype_, static_cast<uint64_t>(cols_)));
    for_each_piece(sources, join_, [&](const std::byte *data, uint64_t bytes) {
        all.insert(all.end(), data, data + bytes);
    });
    return all;
}

keel_weight *Weight::handle(const Device &device) const { return on_.at(&device).handle; }

const keel_tensor *Weight::tensor(const Device &device) const {
    const OnDevice &on = on_.at(&device);
    return on.handle == nullptr ? on.tensor.c() : nullptr;
}

uint64_t Weight::bytes(const Device &device) const {
    const auto on = on_.find(&device);
    return on != on_.end() && on->second.handle != nullptr ? on->second.info.bytes : shape_.bytes();
}

std::string Weight::layout(const Device &device) const {
    const OnDevice &on = on_.at(&device);
    return on.handle != nullptr ? on.info.layout
                                : fmt::format("{}, rows as in the file", keel_dtype_name(dtype_));
}

bool Weight::sources_needed() const {
    for (const auto &[key, on] : on_) {
        if (on.handle != nullptr && on.info.source_needed != 0) return true;
    }
    return false;
}

} // namespace keel
