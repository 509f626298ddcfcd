#pragma once

#include "kv/store/batch_view.hpp"
#include "kv/store/kv_cache.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel {

// Memory that several sequences share. `main` is for the layers of KvLayout::shape. `window` is for
// the layers with a window; NULL: there is no second cache.
struct KvArenas {
    std::shared_ptr<KvArena> main, window;
};

// The keys and values of one sequence in all layers of an engine. The main cache has the layers on
// which a policy acts. A second cache has the layers with an attention window, if the engine has
// both kinds of layers. Each operation is done on both caches. Not thread-safe.
class LayerCaches {
  public:
    LayerCaches(Executor &executor, const KvLayout &layout, keel_buffer_kind placement);
    LayerCaches(const KvArenas &arenas, const KvLayout &layout);

    KvCache &main() const { return *main_; }
    KvCache *window() const { return window_.get(); } // NULL: there is no second cache
    // The views of the engine's layers, in order. Valid until the next begin_repeat() or
    // end_repeat().
    std::span<const keel_kv_view *const> views() const { return views_; }

    // The next functions are like the functions of KvCache with the same names. A cache of layers
    // with a window always has slots for a step.
    bool fits(int64_t n, std::string *why = nullptr) const;
    bool has_slots(int64_t n) const;
    void append(std::span<const int32_t> positions, int64_t n);
    void truncate(int64_t n);
    void clear();
    void refresh();
    LayerCaches fork() const;
    void save(StateWriter &out) const;
    void load(StateReader &in, int64_t seen);
    void reserve_like(const LayerCaches &from);
    // Moves the rows of `from` here, layer by layer, and frees each layer in `from`. Call it after
    // reserve_like(). Returns the bytes written.
    uint64_t take_rows(LayerCaches &from);

    // Frees the blocks whose keys are outside the window of all later queries. Call it after each
    // step.
    void hold_windows();
    // Returns true if the last n tokens can be removed. They cannot be removed if the next query
    // would need keys that were freed. Removing all tokens is always possible.
    bool can_truncate(int64_t n, std::string *why = nullptr) const;

    // These functions are for a policy that makes the model repeat its context. The repeated tokens
    // are appended to the main cache and removed later. They cannot be removed from the window
    // cache, because the window cache frees older keys when tokens are appended. So begin_repeat()
    // replaces the window cache by a copy. append_repeated() appends to the copy. hold_repeated()
    // frees tokens that are no longer in the window of the copy. end_repeat() brings the window
    // cache back.
    void begin_repeat();
    void append_repeated(std::span<const int32_t> positions);
    void hold_repeated(int64_t next);
    void end_repeat();

    uint64_t bytes_in_use() const;
    uint64_t window_bytes() const; // bytes of the second cache
    uint64_t peak_bytes() const;   // the largest number of bytes that all arenas had together

  private:
    LayerCaches() = default;
    void list_views();
    void check_window(const StateReader &in, const KvCache &cache) const;

    std::unique_ptr<KvCache> main_, window_;
    std::unique_ptr<KvCache> kept_window_; // holds the window cache while a copy replaces it
    std::vector<bool> has_window_;         // [layers of the engine]; empty: no second cache
    int64_t max_tokens_ = 0;               // the most tokens of a sequence, if main_ has a window
    int64_t tokens_ = 0;                   // number of tokens since the start
    std::vector<const keel_kv_view *> views_;
};

// Makes views of the caches of a step's sequences. BatchView does the same for one arena.
class LayerBatchView {
  public:
    LayerBatchView(const KvArenas &arenas, const KvLayout &layout, uint32_t most);
    // Returns one view for each layer of the engine. Returns an empty list if one op cannot read
    // these caches together.
    std::span<const keel_batch_kv *const> of(std::span<const LayerCaches *const> caches);

  private:
    BatchView main_;
    std::optional<BatchView> window_;
    std::vector<bool> has_window_;
    std::vector<KvCache *> list_;
    std::vector<const keel_batch_kv *> views_;
};

} // namespace keel
