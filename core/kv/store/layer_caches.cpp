#include "kv/store/layer_caches.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel {
namespace {

// Merges the views of the two caches into one list for all layers of an engine.
template <typename View>
void interleave(const std::vector<bool> &has_window, std::span<View const> main,
                std::span<View const> window, std::vector<View> &out) {
    out.clear();
    if (has_window.empty()) return out.insert(out.end(), main.begin(), main.end()), void();
    auto next_main = main.begin(), next_window = window.begin();
    for (const bool windowed : has_window) out.push_back(windowed ? *next_window++ : *next_main++);
}

} // namespace

LayerCaches::LayerCaches(Executor &executor, const KvLayout &layout, keel_buffer_kind placement)
    : main_(std::make_unique<KvCache>(executor, layout.shape, placement)),
      has_window_(layout.windowed.has_window), max_tokens_(layout.max_tokens) {
    if (layout.windowed.shape.layers > 0)
        window_ = std::make_unique<KvCache>(executor, layout.windowed.shape, placement);
    list_views();
}

LayerCaches::LayerCaches(const KvArenas &arenas, const KvLayout &layout)
    : has_window_(layout.windowed.has_window), max_tokens_(layout.max_tokens) {
    if (!(arenas.main->shape() == layout.shape) ||
        (arenas.window != nullptr) != (layout.windowed.shape.layers > 0))
        throw_error(ErrorKind::internal,
                    "a cache and its arena must have the same shape, found different shapes");
    main_ = KvCache::beside(arenas.main);
    if (arenas.window) window_ = KvCache::beside(arenas.window);
    list_views();
}

void LayerCaches::list_views() {
    interleave<const keel_kv_view *>(
        has_window_, main_->views(),
        window_ ? window_->views() : std::span<const keel_kv_view *const>{}, views_);
}

bool LayerCaches::fits(int64_t n, std::string *why) const {
    if (main_->shape().window == 0) return main_->fits(n, why);
    if (tokens_ + n > max_tokens_) {
        if (why != nullptr) {
            *why =
                fmt::format("the sequence has {} tokens, so {} more would exceed model.context = "
                            "{}; shorten the text, or raise model.context",
                            tokens_, n, max_tokens_);
        }
        return false;
    }
    return main_->fits(std::min(n, main_->shape().max_slots - main_->max_length()), why);
}

bool LayerCaches::has_slots(int64_t n) const {
    return fits(n) && main_->has_slots(n) && (!window_ || window_->has_slots(n));
}

void LayerCaches::append(std::span<const int32_t> positions, int64_t n) {
    main_->append(positions, n);
    if (window_) {
        try {
            window_->append(positions, n);
        } catch (...) { // the device is out of memory
            main_->truncate(n);
            throw;
        }
    }
    tokens_ += n;
}

void LayerCaches::truncate(int64_t n) {
    main_->truncate(n);
    if (window_) window_->truncate(n);
    tokens_ -= n;
}

void LayerCaches::clear() {
    main_->clear();
    if (window_) window_->clear();
    tokens_ = 0;
}

void LayerCaches::refresh() {
    main_->refresh();
    if (window_) window_->refresh();
}

LayerCaches LayerCaches::fork() const {
    LayerCaches copy;
    copy.main_ = main_->fork();
    if (window_) copy.window_ = window_->fork();
    copy.has_window_ = has_window_;
    copy.max_tokens_ = max_tokens_;
    copy.tokens_ = tokens_;
    copy.list_views();
    return copy;
}

void LayerCaches::hold_windows() {
    if (main_->shape().window > 0) main_->hold_window(tokens_);
    if (window_) window_->hold_window(tokens_);
}

bool LayerCaches::can_truncate(int64_t n, std::string *why) const {
    if (n >= tokens_) return true;
    for (const KvCache *cache : {main_.get(), window_.get()}) {
        if (cache == nullptr || cache->shape().window == 0) continue;
        const int64_t window = cache->shape().window, first = cache->first_position();
        if (first <= std::max<int64_t>(0, tokens_ - n - window + 1)) continue;
        if (why != nullptr) {
            *why = fmt::format("{} tokens cannot be taken back: layers with an attention window of "
                               "{} tokens have freed older keys; take back at most {} tokens, or "
                               "all",
                               n, window, std::max<int64_t>(0, tokens_ - window + 1 - first));
        }
        return false;
    }
    return true;
}

// ---- saving and moving --------------------------------------------------------------------------

void LayerCaches::save(StateWriter &out) const {
    main_->save(out);
    if (window_) window_->save(out);
}

void LayerCaches::load(StateReader &in, int64_t seen) {
    if (main_->shape().window > 0 && seen > max_tokens_)
        in.fail("the session has {} tokens, but this pipeline has room only for model.context = "
                "{}; raise model.context",
                seen, max_tokens_);
    tokens_ = seen;
    main_->load(in, seen);
    if (main_->shape().window > 0) check_window(in, *main_);
    if (!window_) return;
    window_->load(in, seen);
    check_window(in, *window_);
}

// Checks that all heads hold the newest tokens without a gap, including all tokens to which the
// next query attends.
void LayerCaches::check_window(const StateReader &in, const KvCache &cache) const {
    const int64_t needed = std::min(tokens_, cache.shape().window - 1);
    const int64_t length = cache.row_length(0);
    for (size_t row = 0; row < cache.rows(); ++row) {
        const auto positions = cache.row_positions(row);
        const bool is_whole = length == 0 || (positions.back() == tokens_ - 1 &&
                                              positions.front() == tokens_ - length);
        if (cache.row_length(row) == length && length >= needed && is_whole) continue;
        in.fail("expected each head of a layer with a window of {} tokens to hold the newest "
                "tokens, found a head with {} of {} tokens; the file is damaged",
                cache.shape().window, cache.row_length(row), tokens_);
    }
}

void LayerCaches::reserve_like(const LayerCaches &from) {
    main_->reserve_like(*from.main_);
    if (window_) window_->reserve_like(*from.window_);
    tokens_ = from.tokens_;
}

uint64_t LayerCaches::take_rows(LayerCaches &from) {
    uint64_t bytes = 0;
    const auto take = [&](KvCache &to, KvCache &old) {
        for (uint32_t l = 0; l < old.shape().layers; ++l) {
            bytes += to.take_rows(old, l);
            old.drop_rows(l);
        }
    };
    take(*main_, *from.main_);
    if (window_) take(*window_, *from.window_);
    return bytes;
}

// ---- a repetition -------------------------------------------------------------------------------

void LayerCaches::begin_repeat() {
    if (!window_) return;
    end_repeat();
    kept_window_ = std::move(window_);
    window_ = kept_window_->fork();
    list_views();
}

void LayerCaches::append_repeated(std::span<const int32_t> positions) {
    if (kept_window_) window_->append(positions, std::ssize(positions));
}

void LayerCaches::hold_repeated(int64_t next) {
    if (kept_window_) window_->hold_window(next);
}

void LayerCaches::end_repeat() {
    if (!kept_window_) return;
    window_ = std::move(kept_window_);
    list_views();
}

// ---- bytes --------------------------------------------------------------------------------------

uint64_t LayerCaches::window_bytes() const {
    return (window_ ? window_->bytes_in_use() : 0) +
           (kept_window_ ? kept_window_->bytes_in_use() : 0);
}

uint64_t LayerCaches::bytes_in_use() const { return main_->bytes_in_use() + window_bytes(); }

uint64_t LayerCaches::peak_bytes() const {
    return main_->arena().peak_bytes() + (window_ ? window_->arena().peak_bytes() : 0);
}

// ---- several sequences --------------------------------------------------------------------------

LayerBatchView::LayerBatchView(const KvArenas &arenas, const KvLayout &layout, uint32_t most)
    : main_(*arenas.main, most), has_window_(layout.windowed.has_window) {
    if (arenas.window) window_.emplace(*arenas.window, most);
    list_.reserve(most);
    views_.reserve(has_window_.size());
}

std::span<const keel_batch_kv *const>
LayerBatchView::of(std::span<const LayerCaches *const> caches) {
    list_.clear();
    for (const LayerCaches *cache : caches) list_.push_back(&cache->main());
    const auto main = main_.of(list_);
    if (!window_) return main;
    list_.clear();
    for (const LayerCaches *cache : caches) list_.push_back(cache->window());
    const auto window = window_->of(list_);
    if (main.empty() || window.empty()) return {};
    interleave<const keel_batch_kv *>(has_window_, main, window, views_);
    return views_;
}

} // namespace keel
