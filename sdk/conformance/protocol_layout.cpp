// keel.weight_layout/1, of backends that serve it: what is kept of a weight is that weight, and all else is refused.
#include "conformance/facts.hpp"

#include <keel/ext/draft/weight_layout.h>

#include <cstring>
#include <vector>

namespace keel::conformance {
namespace {

// 40 rows of 64 columns in two parts, with scales that are finite.
class KeptScene {
  public:
    static constexpr int64_t first = 24, second = 16, rows = first + second, cols = 64;

    explicit KeptScene(keel_dtype dtype)
        : row_bytes_(keel_dtype_row_bytes(dtype, cols)), bytes_(static_cast<size_t>(rows) * row_bytes_) {
        const uint32_t block = keel_dtype_bytes(dtype);
        uint32_t state = 1;
        for (size_t i = 0; i < bytes_.size(); ++i) {
            state = state * 1664525 + 1013904223;
            bytes_[i] = static_cast<uint8_t>(state >> 24);
            if (i % block == 1) bytes_[i] = 0x20; // the upper half of an f16 of about 0.01
            if (block == 2 && i % 2 == 1) bytes_[i] = static_cast<uint8_t>(0x30 | (state >> 24 & 0x87));
        }
        for (int i = 0; i < 2; ++i) {
            parts_[i] = {KEEL_HEADER(keel_weight_source)};
            parts_[i].mapping = bytes_.data();
            parts_[i].mapping_bytes = bytes_.size();
            parts_[i].offset = i == 0 ? 0 : static_cast<uint64_t>(first) * row_bytes_;
            parts_[i].dtype = dtype;
            parts_[i].rows = i == 0 ? first : second;
            parts_[i].cols = cols;
            pointers_[i] = &parts_[i];
        }
        desc_.sources = pointers_;
        desc_.n_sources = 2;
        desc_.use = KEEL_USE_MATMUL;
        desc_.max_m = 4;
    }
    KeptScene(const KeptScene &) = delete;
    KeptScene &operator=(const KeptScene &) = delete;

    const keel_weight_desc *desc() const { return &desc_; }
    const std::vector<uint8_t> &bytes() const { return bytes_; }
    uint64_t row_bytes() const { return row_bytes_; }
    void forget_rows() {
        for (keel_weight_source &part : parts_)
            part.mapping = nullptr, part.mapping_bytes = 0, part.offset = 0;
    }

  private:
    uint64_t row_bytes_;
    std::vector<uint8_t> bytes_;
    keel_weight_source parts_[2];
    const keel_weight_source *pointers_[2];
    keel_weight_desc desc_ = {KEEL_HEADER(keel_weight_desc)};
};

keel_tensor tensor_of(keel_buffer *buffer, int64_t m, int64_t n) {
    keel_tensor t = {KEEL_HEADER(keel_tensor)};
    t.buffer = buffer;
    t.dtype = KEEL_DTYPE_F32;
    t.rank = 2;
    t.shape[0] = m, t.shape[1] = n;
    t.stride[0] = 4 * n;
    return t;
}

// Three rows of activations times the weight; empty where matmul fails.
std::vector<float> product(Side &side, keel_weight *weight) {
    constexpr int64_t m = 3;
    std::vector<float> x(m * KeptScene::cols), y(m * KeptScene::rows);
    for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i % 13) - 6;
    keel_buffer *in = side.upload(x.data(), 4 * x.size()), *out = side.upload(y.data(), 4 * y.size());
    const keel_tensor tx = tensor_of(in, m, KeptScene::cols), ty = tensor_of(out, m, KeptScene::rows);
    keel_matmul_args args = {};
    args.h = KEEL_HEADER(keel_matmul_args);
    args.x = &tx, args.weight = weight, args.out = &ty;
    const bool is_done = side.table().matmul(side.ctx(), &args) == KEEL_OK;
    if (is_done) side.read(out, y.data(), 4 * y.size());
    side.destroy(in);
    side.destroy(out);
    return is_done ? y : std::vector<float>();
}

void check_kept(Facts &facts, Side &side, const keel_weight_layout &table, keel_dtype dtype) {
    const std::string what = std::string("weight layout, ") + keel_dtype_name(dtype);
    KeptScene scene(dtype);
    keel_weight *weight = nullptr, *again = nullptr;
    if (side.table().weight_prepare(side.ctx(), scene.desc(), &weight) != KEEL_OK)
        return; // its own tests say so
    keel_weight_layout_info info = {KEEL_HEADER(keel_weight_layout_info)};
    const std::vector<uint8_t> rows = scene.bytes();
    scene.forget_rows();
    facts.expect(table.describe(side.ctx(), scene.desc(), &info) == KEEL_OK,
                 what + ": describe fails, or looks at the mapping");
    const bool has_name = info.name[0] != 0;
    facts.expect(has_name == (info.bytes != 0), what + ": a name without bytes, or bytes without a name");
    if (!has_name) {
        uint8_t byte = 0;
        facts.expect(table.keep(side.ctx(), weight, 0, &byte, 1) == KEEL_E_UNSUPPORTED,
                     what + ": keep of what has no name is not UNSUPPORTED");
        return side.table().weight_destroy(side.ctx(), weight);
    }
    facts.expect(info.bytes >= rows.size(), what + ": the layout is smaller than its values");
    std::vector<uint8_t> file(info.align + info.bytes);
    const uint64_t half = info.bytes / 2;
    facts.expect(table.keep(side.ctx(), weight, 0, file.data() + info.align, half) == KEEL_OK &&
                     table.keep(side.ctx(), weight, half, file.data() + info.align + half,
                                info.bytes - half) == KEEL_OK,
                 what + ": keep fails");
    facts.expect(table.keep(side.ctx(), weight, info.bytes, file.data(), 1) == KEEL_E_INVALID_ARG,
                 what + ": keep beyond the weight is not INVALID_ARG");
    keel_laid_out laid = {KEEL_HEADER(keel_laid_out)};
    laid.name = info.name;
    laid.mapping = file.data();
    laid.mapping_bytes = file.size();
    laid.offset = info.align;
    laid.bytes = info.bytes;
    const auto take = [&](keel_laid_out changed) {
        again = nullptr;
        return table.take(side.ctx(), scene.desc(), &changed, &again);
    };
    facts.expect(take(laid) == KEEL_OK && again != nullptr, what + ": take fails");
    if (again != nullptr) {
        const std::vector<float> expected = product(side, weight), found = product(side, again);
        facts.expect(!expected.empty() && expected == found, what + ": what was taken is another weight");
        side.table().weight_destroy(side.ctx(), again);
    }
    const auto refused = [&](keel_laid_out changed, keel_status status, const char *why) {
        facts.expect(take(changed) == status && again == nullptr, what + ": " + why);
    };
    keel_laid_out other = laid;
    other.name = "nobody/knows/1";
    refused(other, KEEL_E_UNSUPPORTED, "an unknown layout is not UNSUPPORTED");
    other = laid;
    other.bytes -= 1;
    refused(other, KEEL_E_INVALID_ARG, "a byte too few is not INVALID_ARG");
    other = laid;
    other.mapping_bytes -= 1;
    refused(other, KEEL_E_INVALID_ARG, "bytes beyond the mapping are not INVALID_ARG");
    other.offset = UINT64_MAX;
    refused(other, KEEL_E_INVALID_ARG, "an offset beyond the mapping is not INVALID_ARG");
    if (table.rows != nullptr) {
        std::vector<uint8_t> undone(rows.size());
        facts.expect(table.rows(side.ctx(), scene.desc(), &laid, 0, KeptScene::rows, undone.data()) ==
                             KEEL_OK &&
                         undone == rows,
                     what + ": rows are not those that it was made from");
        facts.expect(table.rows(side.ctx(), scene.desc(), &laid, KeptScene::rows - 1, 2, undone.data()) ==
                         KEEL_E_INVALID_ARG,
                     what + ": rows beyond the last are not INVALID_ARG");
    }
    side.table().weight_destroy(side.ctx(), weight);
}

} // namespace

void check_kept_weights(Facts &facts, const Library &library, Side &side) {
    const keel_plugin &plugin = library.plugin();
    const void *theirs =
        plugin.get_extension == nullptr ? nullptr : plugin.get_extension(KEEL_EXT_WEIGHT_LAYOUT);
    if (theirs == nullptr) return;
    keel_weight_layout table;
    const bool fits =
        keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_weight_layout, take)) == KEEL_OK;
    facts.expect(fits, "weight layout: the table is too small or of another ABI major");
    if (!fits || side.table().weight_prepare == nullptr) return;
    const uint64_t held = side.bytes_held();
    for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0})
        check_kept(facts, side, table, dtype);
    side.finish();
    facts.expect(side.bytes_held() <= held + (uint64_t{1} << 20), // scratch may have grown
                 "weight layout: mem_info.ours does not come back");
}

} // namespace keel::conformance
