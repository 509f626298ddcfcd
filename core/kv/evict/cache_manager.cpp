#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "device/device.hpp"
#include "kv/evict/check_policy.hpp"
#include "kv/evict/check_sequence.hpp"
#include "kv/evict/kv_trace.hpp"

#include <algorithm>
#include <limits>

namespace keel {

CacheManager::CacheManager(PolicySetup &setup, keel_buffer_kind placement)
    : setup_(setup), placement_(placement), caches_(setup.executor(), setup.layout(), placement),
      cache_(&caches_.main()), tap_(setup.layout().windowed.has_window), tokens_(setup),
      clock_(setup, tokens_) {
    start();
}

CacheManager::CacheManager(PolicySetup &setup, const KvArenas &arenas)
    : setup_(setup), placement_(arenas.main->placement()), caches_(arenas, setup.layout()),
      cache_(&caches_.main()), tap_(setup.layout().windowed.has_window), tokens_(setup),
      clock_(setup, tokens_) {
    start();
}

CacheManager::~CacheManager() { cache_->arena().set_aside(0, set_aside_); }

void CacheManager::start() {
    stamp_.number = setup_.next_sequence();
    set_aside_ = setup_.budget().set_aside();
    cache_->arena().set_aside(set_aside_, 0);
    // open() empties the log. So even after a run without evictions, the log has no records of an
    // older run.
    if (setup_.log() != nullptr) setup_.log()->open();
    if (!setup_.keeps_all() || !setup_.collected().empty())
        inputs_ = std::make_unique<PolicyInputs>(setup_, placement_);
    if (setup_.keeps_all()) return;
    eviction_ = std::make_unique<Eviction>(setup_, setup_.config().seed);
    if (setup_.may_move_keys())
        rerotation_ = std::make_unique<Rerotation>(setup_, placement_, tokens_.prefix());
}

// ---- steps -------------------------------------------------------------------------------------

bool CacheManager::can_take(int64_t n, bool prompt, std::string *why) const {
    if (prompt && !can_repeat_context(n, why)) return false;
    std::string limit;
    if (caches_.fits(n, &limit) || clock_.makes_room(n, prompt, seen_, limit)) return true;
    if (why != nullptr) *why = limit;
    return false;
}

// Returns true if the model can repeat the prompt after n more tokens (KEEL_NEED_REPLAY): the cache
// has room for the repeated tokens.
bool CacheManager::can_repeat_context(int64_t n, std::string *why) const {
    if (!setup_.needs(KEEL_NEED_REPLAY) || forward_ == nullptr) return true;
    const int64_t room = ContextRepeat::room(setup_, *forward_, seen_ + n);
    if (!cache_->fits(n) || cache_->fits(n + room, why)) return true;
    if (why != nullptr) {
        *why = fmt::format("policy {} makes the model repeat the prompt, which needs room for {} "
                           "more tokens for a short time: {}",
                           setup_.config().policy.name, room, *why);
    }
    return false;
}

int64_t CacheManager::next_chunk(int64_t left, int64_t preferred) const {
    int64_t n =
        clock_.chunk_that_fits(std::min(left, std::max<int64_t>(preferred, 1)), *cache_, seen_);
    const int64_t window = setup_.needs().window;
    const int64_t after = left - n;
    if (after > 0 && after < window) n = std::max<int64_t>(1, std::min(n, left - window));
    // A policy can read the attention within pieces of the prompt (chunk_scores). Then a piece is
    // never split.
    if (n < left && setup_.collected().chunks) {
        const int64_t over = (seen_ + n) % setup_.collected().chunks->tokens;
        if (over < n) n -= over;
    }
    return n;
}

std::span<const EvictionRecord> CacheManager::before_append(int64_t n, StepKind kind) {
    std::string why;
    if (caches_.fits(n, &why)) return {};
    if (const auto firing = clock_.before_append(kind, n, seen_)) {
        const auto records = run(*firing);
        if (cache_->fits(n, &why)) return records;
    } else if (clock_.may_act(kind) && !setup_.config().at_insert) {
        why += "; add insert to policy.trigger.on, so that Keel evicts before the cache is full";
    }
    throw_error(ErrorKind::resource, "{}", why);
}

std::span<const int32_t> CacheManager::next_positions(int64_t n) {
    if (seen_ + n > std::numeric_limits<int32_t>::max()) {
        throw_error(ErrorKind::resource,
                    "the sequence has {} tokens, and the largest position is {}; shorten the text",
                    seen_, std::numeric_limits<int32_t>::max());
    }
    positions_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
        positions_[static_cast<size_t>(i)] = static_cast<int32_t>(seen_ + i);
    return positions_;
}

void CacheManager::append(int64_t n) {
    tokens_.record_append(*cache_, seen_, n);
    caches_.append(next_positions(n), n);
    count_append(n);
}

void CacheManager::count_append(int64_t n) {
    seen_ += n;
    tail_ += n;
    clock_.count(n);
    peaks_.note(bytes_in_use(), policy_bytes());
    trace_cache(setup_.executor().stream().trace(), *cache_, seen_, bytes_in_use());
}

StepTap *CacheManager::begin_step(int64_t n, StepKind kind) {
    if (!inputs_) return nullptr;
    const bool evicts = clock_.expects(kind, *cache_, seen_);
    return tap_.over(inputs_->begin_step(*cache_, {kind, seen_ - n, n, evicts}));
}

std::span<const EvictionRecord> CacheManager::after_step(StepKind kind) {
    // the peak includes the data that the step collected for the policy
    peaks_.note(bytes_in_use(), policy_bytes());
    caches_.hold_windows();
    std::span<const EvictionRecord> records = answer_pressure(kind);
    if (records.empty()) {
        if (const auto firing = clock_.after_step(kind, *cache_, seen_)) records = run(*firing);
    }
    if (kind == StepKind::prefill_end) end_prompt();
    return records;
}

bool CacheManager::can_append_ahead() const {
    return !setup_.collects_in_decode() && seen_ < std::numeric_limits<int32_t>::max() &&
           caches_.has_slots(1) && !clock_.will_fire_next(*cache_, seen_);
}

void CacheManager::append_ahead() { caches_.append(next_positions(1), 1); }

void CacheManager::keep_ahead() {
    tokens_.record_append(*cache_, seen_, 1, 1);
    count_append(1);
}

void CacheManager::drop_ahead() { caches_.truncate(1); }

std::span<const EvictionRecord> CacheManager::evict() {
    if (setup_.keeps_all()) return {};
    if (setup_.needs(KEEL_NEED_WINDOW_SCORES) && !inputs_->has_queries(*cache_, tail_)) {
        throw_error(ErrorKind::usage,
                    "policy {} needs the queries of the latest tokens, but the cache has none at "
                    "this time; let a trigger (policy.trigger.on) evict instead of this call",
                    setup_.config().policy.name);
    }
    return run({KEEL_TRIGGER_BUDGET, clock_.budget(seen_).tokens});
}

std::span<const EvictionRecord> CacheManager::run(const Firing &firing) {
    const uint64_t cache = bytes_in_use(), held = cache + policy_bytes();
    const bool done =
        eviction_->run(firing, {*cache_, *inputs_, tokens_, clock_, rerotation_.get(), totals_,
                                stamp_, seen_, tail_, [this] { return repeat_context(); }});
    // Slots are evicted only after all decisions. Until then memory holds both the policy's inputs
    // and the whole cache.
    peaks_.note(cache, policy_bytes());
    const bool again_soon = firing.trigger != KEEL_TRIGGER_PRESSURE;
    inputs_->finish_eviction(again_soon);
    if (!again_soon) eviction_->release();
    if (!done) return {};
    peaks_.evicting = std::max(peaks_.evicting, held);
    if (!eviction_->records().empty())
        trace_cache(setup_.executor().stream().trace(), *cache_, seen_, bytes_in_use());
    return eviction_->records();
}

// Lets the model repeat its context, and computes scores from the repetition. inputs_ passes the
// scores to the policy. Returns false if the repetition was cancelled.
bool CacheManager::repeat_context() {
    if (forward_ == nullptr)
        throw_error(ErrorKind::internal,
                    "policy {} needs a replay of the prompt, but the cache has no function that "
                    "runs the model",
                    setup_.config().policy.name);
    const auto numbers = [this](uint32_t layer, uint32_t head) {
        return tokens_.tokens(*cache_, size_t{layer} * setup_.shape().kv_heads + head);
    };
    const int64_t slots =
        std::min(cache_->max_length() + ContextRepeat::room(setup_, *forward_, seen_),
                 setup_.shape().blocks_per_head() * setup_.shape().block_slots);
    LayerRepeat forward(caches_, *forward_, tap_, seen_);
    ContextRepeat repeat(setup_, *cache_, forward, numbers, inputs_->repeat_scores(slots),
                         placement_);
    const bool is_whole = repeat.run(seen_);
    peaks_.note(repeat.peak_bytes() + forward.peak_window_bytes(), policy_bytes());
    cache_->refresh();
    return is_whole;
}

// ---- protected tokens --------------------------------------------------------------------------

void CacheManager::protect_prefix(int64_t tokens, std::string_view what) {
    if (seen_ != 0)
        throw_error(ErrorKind::internal,
                    "a prefix can be protected only in an empty cache, found a cache of {} tokens",
                    seen_);
    const int64_t prefix = std::max(tokens, setup_.config().protect_prefix);
    // If the policy keeps all slots, only forks of the sequence use the prefix.
    if (!setup_.keeps_all()) check_prefix(setup_.config(), setup_.budget(), prefix, what);
    set_prefix(prefix);
}

// The cache must be empty, or no eviction can have rotated its keys to new positions.
void CacheManager::set_prefix(int64_t prefix) {
    tokens_.set_prefix(prefix);
    if (rerotation_) rerotation_ = std::make_unique<Rerotation>(setup_, placement_, prefix);
}

void CacheManager::pin(int64_t from, int64_t to, std::string_view what) {
    if (from < 0 || from >= to || to > (int64_t{1} << 30))
        throw_error(ErrorKind::internal, "tokens {} to {} are not a valid range to pin", from, to);
    if (setup_.keeps_all()) return;
    const TokenRun run = {static_cast<int32_t>(from), static_cast<int32_t>(to)};
    tokens_.pin(run, *cache_, seen_, tail_, what);
}

// ---- truncate, fork, move, save ----------------------------------------------------------------

bool CacheManager::can_truncate(int64_t n, std::string *why) const {
    if (n < 0 || n > tail_) {
        if (why != nullptr)
            *why = fmt::format("{} tokens cannot be taken back: only the latest {} tokens are "
                               "still complete in the cache",
                               n, tail_);
        return false;
    }
    if (!caches_.can_truncate(n, why)) return false;
    if (!inputs_ || inputs_->can_truncate(n, seen_)) return true;
    if (why != nullptr) {
        *why = fmt::format(
            "{} tokens cannot be taken back: policy {} uses sums that include these tokens", n,
            setup_.config().policy.name);
    }
    return false;
}

void CacheManager::truncate(int64_t n) {
    std::string why;
    if (!can_truncate(n, &why)) throw_error(ErrorKind::usage, "{}", why);
    caches_.truncate(n);
    if (inputs_) inputs_->truncate(*cache_, n, seen_);
    seen_ -= n;
    tail_ -= n;
    clock_.count(-n);
    if (rerotation_) rerotation_->truncate(*cache_);
    if (eviction_) eviction_->policy().truncate(seen_);
    tokens_.truncate(seen_, n);
}

void CacheManager::reseed(uint64_t seed) {
    if (!eviction_) return;
    if (totals_.evictions != 0)
        throw_error(ErrorKind::internal, "the seed of policy {} cannot change after an eviction",
                    setup_.config().policy.name);
    eviction_->reseed(seed);
}

void CacheManager::reset() {
    caches_.clear();
    peaks_ = {};
    seen_ = tail_ = 0;
    totals_ = {};
    stamp_.start = std::chrono::steady_clock::now();
    if (eviction_) eviction_->policy().reset();
    if (inputs_) inputs_->reset();
    clock_.reset();
    tokens_.reset();
    set_prefix(tokens_.prefix());
}

void CacheManager::save(StateWriter &out) const {
    out.put(seen_);
    clock_.save(out);
    out.put(tail_);
    out.put(tokens_.prefix());
    totals_.save(out);
    caches_.save(out);
    if (rerotation_) rerotation_->save(out);
    if (eviction_) eviction_->policy().save(out);
    tokens_.save(out);
    if (inputs_) inputs_->save(out, *cache_);
    tokens_.save_numbers(out);
}

void CacheManager::load(StateReader &in) {
    reset();
    try {
        seen_ = in.get_count("tokens", 0, std::numeric_limits<int32_t>::max());
        clock_.load(in, seen_);
        tail_ = in.get_count("newest tokens", 0, seen_);
        set_prefix(tokens_.load_prefix(in));
        totals_.load(in);
        caches_.load(in, seen_);
        check_lengths(in, setup_, *cache_, seen_, tail_);
        if (rerotation_) rerotation_->load(in, *cache_);
        if (eviction_) eviction_->policy().load(in);
        tokens_.load(in, *cache_, seen_);
        if (!setup_.keeps_all() && tokens_.slots() + 1 > clock_.budget(seen_).tokens)
            in.fail("the session has more protected and pinned tokens than this pipeline's budget "
                    "has slots; raise policy.budget");
        if (inputs_) inputs_->load(in, *cache_, seen_);
        tokens_.load_numbers(in, *cache_, seen_);
    } catch (...) {
        reset();
        throw;
    }
}

bool CacheManager::has_evicted() const {
    return cache_->total_length() != seen_ * static_cast<int64_t>(cache_->rows());
}

CacheManager::CacheManager(CacheManager &parent, PolicySetup &setup, LayerCaches caches)
    : setup_(setup), placement_(parent.placement_), caches_(std::move(caches)),
      cache_(&caches_.main()), tap_(setup.layout().windowed.has_window), tokens_(setup),
      clock_(setup, tokens_), seen_(parent.seen_), tail_(parent.tail_) {
    const bool is_same = &setup == &parent.setup_;
    const bool evicted = parent.has_evicted();
    if (is_same || setup.config().protect_system_prompt)
        tokens_.set_prefix(std::max(parent.tokens_.prefix(), setup.config().protect_prefix));
    start();
    if (inputs_ && parent.inputs_) inputs_->copy_from(*parent.inputs_, *cache_);
    if (rerotation_ && parent.rerotation_ && (is_same || evicted))
        rerotation_ = parent.rerotation_->fork(setup, *cache_);
    clock_.copy_from(parent.clock_, is_same);
    if (is_same) {
        tokens_.copy_from(parent.tokens_);
        if (eviction_) eviction_->fork_policy(*parent.eviction_);
    } else if (!setup.keeps_all()) {
        tokens_.adopt(parent.tokens_, *cache_, seen_, evicted);
    }
}

std::unique_ptr<CacheManager> CacheManager::fork() { return fork_into(setup_); }

std::unique_ptr<CacheManager> CacheManager::fork_into(PolicySetup &setup, int64_t to_come) {
    if (&setup != &setup_)
        check_fork(setup_, setup, {seen_, tokens_.prefix(), has_evicted(), to_come});
    return std::unique_ptr<CacheManager>(new CacheManager(*this, setup, caches_.fork()));
}

std::unique_ptr<CacheManager> CacheManager::begin_move(PolicySetup &setup,
                                                       keel_buffer_kind placement) {
    if (setup.shape().layers != setup_.shape().layers ||
        setup.config().policy.name != setup_.config().policy.name)
        throw_error(ErrorKind::internal,
                    "a cache under policy {} cannot move to a cache under policy {}",
                    setup_.config().policy.name, setup.config().policy.name);
    auto to = std::make_unique<CacheManager>(setup, placement);
    to->set_prefix(tokens_.prefix());
    to->caches_.reserve_like(caches_);
    if (inputs_ && to->inputs_) to->inputs_->take_over(*inputs_, *to->cache_);
    if (rerotation_) to->rerotation_ = rerotation_->take_over(setup, *to->cache_, placement);
    return to;
}

uint64_t CacheManager::finish_move(CacheManager &to) {
    const uint64_t bytes = to.caches_.take_rows(caches_);
    to.setup_.executor().stream().wait();
    // The policy's state is on the host, so it is moved without a change. The state refers to this
    // manager's setup, which exists as long as the pipeline.
    if (eviction_) to.eviction_->take_over(*eviction_);
    to.tokens_.copy_from(tokens_);
    to.clock_.copy_from(clock_, true);
    to.stamp_ = stamp_;
    to.seen_ = seen_;
    to.tail_ = tail_;
    to.totals_ = totals_;
    to.peaks_ = peaks_;
    return bytes;
}

void CacheManager::begin_like(const CacheManager &other) {
    reset();
    set_prefix(other.tokens_.prefix());
    tokens_.pin_like(other.tokens_);
    stamp_ = other.stamp_;
    totals_ = other.totals_;
    peaks_ = other.peaks_;
}

} // namespace keel
