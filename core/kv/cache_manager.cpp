#include "kv/cache_manager.hpp"

#include "base/error.hpp"
#include "kv/keep_lists.hpp"
#include "kv/kv_trace.hpp"

#include <algorithm>
#include <limits>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

int64_t shortest_kept(const KeepLists &keep) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto &list : keep)
        least = std::min(least, std::ssize(list));
    return least;
}

} // namespace

CacheManager::CacheManager(CachePlan &plan, keel_buffer_kind placement)
    : plan_(plan), placement_(placement), prefix_(plan.config().protect_prefix),
      cache_(std::make_unique<KvCache>(plan.executor(), plan.shape(), placement)) {
    start();
}

CacheManager::CacheManager(const CacheManager &parent, std::unique_ptr<KvCache> cache)
    : plan_(parent.plan_), placement_(parent.placement_), prefix_(parent.prefix_), cache_(std::move(cache)),
      seen_(parent.seen_), since_every_n_(parent.since_every_n_), tail_(parent.tail_) {
    start();
    copy_extras(parent);
    if (parent.policy_) policy_ = parent.policy_->fork();
    if (parent.rerotation_) rerotation_ = parent.rerotation_->fork();
}

CacheManager::~CacheManager() = default;

void CacheManager::start() {
    sequence_ = plan_.next_sequence();
    start_ = Clock::now();
    if (plan_.log() != nullptr) plan_.log()->open(); // empty, not an older run's, if nothing is ever evicted
    if (plan_.keeps_all()) return;
    start_extras();
    keel_policy_needs needs;
    policy_ = std::make_unique<PolicyState>(plan_.config().policy, plan_.host()->table(), plan_.geometry(),
                                            plan_.config().seed, needs);
    if (plan_.config().allocator.table != nullptr) {
        keel_allocator_needs allocator_needs;
        allocator_ = std::make_unique<AllocatorState>(plan_.config().allocator, plan_.host()->table(),
                                                      plan_.geometry(), allocator_needs);
    }
    if (plan_.may_move_keys()) rerotation_ = std::make_unique<Rerotation>(plan_, placement_, prefix_);
    keep_.resize(plan_.shape().layers);
    records_.reserve(plan_.shape().layers);
}

bool CacheManager::may_act(StepKind kind) const {
    if (plan_.keeps_all()) return false;
    return kind == StepKind::decode ? !plan_.prefill_only() : plan_.acts_in_prefill();
}

bool CacheManager::is_over(const BudgetNow &budget) const {
    const KvShape &s = plan_.shape();
    int64_t held = 0;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h)
            held += cache_->length(l, h);
    }
    return held > (budget.tokens + budget.slack) * s.layers * s.kv_heads;
}

bool CacheManager::can_take(int64_t n, bool prompt, std::string *why) const {
    std::string limit;
    if (cache_->fits(n, &limit)) return true;
    const CacheConfig &config = plan_.config();
    const auto refuse = [&](const std::string &cure) {
        if (why != nullptr) *why = limit + cure;
        return false;
    };
    if (plan_.keeps_all()) return refuse("");
    if (prompt && !plan_.acts_in_prefill()) {
        const std::string others = config.other_policies ? config.other_policies() : std::string{};
        return refuse(
            fmt::format("; policy {} does not evict before the prompt's end, so the whole prompt has to "
                        "fit: raise the limit, or choose a policy that acts between chunks{}",
                        config.policy.name, others.empty() ? "" : " (" + others + ")"));
    }
    if (!prompt && plan_.prefill_only())
        return refuse(fmt::format("; policy {} evicts at the prompt's end only", config.policy.name));
    const int64_t capacity = plan_.capacity_slots();
    const BudgetNow budget = budget_now(seen_ + n);
    const int64_t least = config.at_insert ? protected_slots() + 1 : budget.tokens;
    const bool fires = config.at_insert || (config.at_budget && budget.tokens < capacity) ||
                       (!prompt && config.every_n && budget.tokens + *config.every_n < capacity);
    if (!fires) {
        return refuse(config.at_budget
                          ? "; policy.budget is no smaller than that limit: lower it, or add insert "
                            "to policy.trigger.on"
                          : "; add budget or insert to policy.trigger.on");
    }
    if (least + 1 > capacity) return refuse("; the protected tokens (policy.protect) alone fill it");
    return true;
}

int64_t CacheManager::next_chunk(int64_t left, int64_t preferred) const {
    int64_t n = std::min(left, std::max<int64_t>(preferred, 1));
    if (may_act(StepKind::prefill_chunk) && !cache_->fits(n)) {
        const int64_t capacity = plan_.capacity_slots();
        const int64_t kept = plan_.config().at_insert ? std::min(budget_now(seen_).tokens, capacity - 1)
                                                      : cache_->max_length();
        n = std::clamp<int64_t>(capacity - kept, 1, n);
    }
    const int64_t window = plan_.needs().window;
    const int64_t after = left - n;
    if (after > 0 && after < window) n = std::max<int64_t>(1, std::min(n, left - window));
    return n;
}

std::span<const EvictionRecord> CacheManager::before_append(int64_t n, StepKind kind) {
    std::string why;
    if (cache_->fits(n, &why)) return {};
    if (may_act(kind) && plan_.config().at_insert) {
        const int64_t target = std::min(budget_now(seen_).tokens, plan_.capacity_slots() - n);
        if (target > protected_slots()) {
            const auto records = run_eviction(KEEL_TRIGGER_INSERT, target);
            if (cache_->fits(n, &why)) return records;
        }
    } else if (may_act(kind)) {
        why += "; add insert to policy.trigger.on to evict before that";
    }
    throw_error(ErrorKind::resource, "{}", why);
}

std::span<const int32_t> CacheManager::next_positions(int64_t n) {
    if (seen_ + n > std::numeric_limits<int32_t>::max()) {
        throw_error(ErrorKind::resource, "the sequence has {} tokens; positions end at {}", seen_,
                    std::numeric_limits<int32_t>::max());
    }
    positions_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
        positions_[static_cast<size_t>(i)] = static_cast<int32_t>(seen_ + i);
    return positions_;
}

void CacheManager::append(int64_t n) {
    note_append(n);
    cache_->append(next_positions(n), n);
    seen_ += n;
    since_every_n_ += n;
    tail_ += n;
    trace_cache(plan_.executor().stream().trace(), *cache_, seen_);
}

std::span<const EvictionRecord> CacheManager::after_step(StepKind kind) {
    if (plan_.keeps_all()) return {};
    const CacheConfig &config = plan_.config();
    if (pressure_ && (may_act(kind) || kind == StepKind::prefill_end)) {
        if (const auto records = answer_pressure(); !records.empty()) return records;
    }
    const BudgetNow budget = budget_now(seen_);
    if (kind == StepKind::prefill_end && config.at_prefill_end)
        return run_eviction(KEEL_TRIGGER_PREFILL_END, budget.tokens);
    if (kind != StepKind::prefill_end && !may_act(kind)) return {};
    if (plan_.prefill_only()) return {};
    if (config.every_n && since_every_n_ >= *config.every_n) {
        since_every_n_ = 0;
        return run_eviction(KEEL_TRIGGER_EVERY_N, budget.tokens);
    }
    if (!config.at_budget || !is_over(budget)) return {};
    return run_eviction(kind == StepKind::prefill_chunk ? KEEL_TRIGGER_CHUNK : KEEL_TRIGGER_BUDGET,
                        budget.tokens);
}

std::span<const EvictionRecord> CacheManager::evict() {
    if (plan_.keeps_all()) return {};
    return run_eviction(KEEL_TRIGGER_BUDGET, budget_now(seen_).tokens);
}

void CacheManager::truncate(int64_t n) {
    if (n < 0 || n > tail_) {
        throw_error(ErrorKind::usage,
                    "{} tokens cannot be taken back: of the last ones {} are still in the cache", n, tail_);
    }
    cache_->truncate(n);
    seen_ -= n;
    tail_ -= n;
    since_every_n_ = std::max<int64_t>(0, since_every_n_ - n);
    if (rerotation_) rerotation_->truncate(*cache_);
    if (policy_) policy_->truncate(seen_);
    pins_.truncate(seen_);
    if (numbers_) numbers_->truncate(n);
}

void CacheManager::reset() {
    cache_->clear();
    seen_ = tail_ = since_every_n_ = 0;
    evictions_ = evicted_slots_ = evicted_bytes_ = 0;
    start_ = Clock::now();
    if (policy_) policy_->reset();
    pins_.clear();
    if (numbers_) numbers_->clear();
    if (pressure_) pressure_->restart();
    pressure_facts_.reset();
    set_prefix(plan_.config().protect_prefix);
}

void CacheManager::protect_prefix(int64_t tokens, std::string_view what) {
    if (plan_.keeps_all()) return;
    if (seen_ != 0) throw_error(ErrorKind::internal, "a prefix to be protected behind {} tokens", seen_);
    const int64_t prefix = std::max(tokens, plan_.config().protect_prefix);
    plan_.check_prefix(prefix, what);
    set_prefix(prefix);
}

// Of an empty cache, or of one whose keys were never moved.
void CacheManager::set_prefix(int64_t prefix) {
    prefix_ = prefix;
    if (rerotation_) rerotation_ = std::make_unique<Rerotation>(plan_, placement_, prefix_);
}

std::unique_ptr<CacheManager> CacheManager::fork() const {
    return std::unique_ptr<CacheManager>(new CacheManager(*this, cache_->fork()));
}

// ---- one eviction --------------------------------------------------------------------------------------------------

std::span<const EvictionRecord> CacheManager::run_eviction(keel_trigger trigger, int64_t target) {
    const KvShape &s = plan_.shape();
    records_.clear();
    share_out(target);
    bool is_needed = false;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h)
            is_needed = is_needed || cache_->length(l, h) > budgets_[size_t{l} * s.kv_heads + h];
    }
    if (!is_needed) return {};
    cache_->refresh();
    stride_ = cache_->max_length();
    const bool once = plan_.needs().granularity == KEEL_KEEP_TOKEN;
    read_inputs(once ? 1 : s.layers);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const auto when = std::chrono::system_clock::now();
    // All is decided before anything moves: a policy that fails leaves the cache as it was.
    for (uint32_t l = 0; l < s.layers; ++l) {
        EvictionRecord record;
        if (once && l > 0) { // what the policy said once
            record = records_.front();
            record.microseconds = 0;
            keep_[l] = keep_[0];
        } else {
            const auto begin = Clock::now();
            decide(l, trigger, record);
            record.microseconds = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
        }
        record.sequence = sequence_;
        record.tokens = seen_;
        record.seconds = seconds;
        record.when = when;
        record.budget = target;
        record.pressure = pressure_facts_;
        record.trigger = trigger;
        record.layer = l;
        record.heads = s.kv_heads;
        record.held_max = cache_->max_length(l);
        records_.push_back(record);
    }
    compact(records_);
    return records_;
}

// budgets_ from a budget per head on average.
void CacheManager::share_out(int64_t target) {
    const KvShape &s = plan_.shape();
    const size_t rows = size_t{s.layers} * s.kv_heads;
    budgets_.assign(rows, static_cast<int32_t>(std::min<int64_t>(target, s.max_slots)));
    if (!allocator_) return;
    lengths_.resize(rows);
    for (size_t i = 0; i < rows; ++i) {
        lengths_[i] = static_cast<int32_t>(
            cache_->length(static_cast<uint32_t>(i / s.kv_heads), static_cast<uint32_t>(i % s.kv_heads)));
    }
    keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
    input.layers = s.layers;
    input.kv_heads = s.kv_heads;
    input.budget = budgets_[0];
    input.protected_slots = protected_slots();
    input.lengths = lengths_.data();
    allocator_->allocate(input, budgets_);
    const keel_granularity granularity = plan_.needs().granularity;
    for (size_t i = 0; i < rows; ++i) {
        const bool same_layer = i % s.kv_heads != 0;
        const bool must_agree =
            granularity == KEEL_KEEP_TOKEN
                ? i > 0
                : same_layer && (granularity == KEEL_KEEP_LAYER || !plan_.has_ragged_budgets());
        if (must_agree && budgets_[i] != budgets_[i - 1]) {
            throw_error(
                ErrorKind::plugin,
                "{}budget allocator {} gave layer {} head {} {} slots and the one before {}; policy {} keeps "
                "as many in both",
                plan_.config().allocator.places.prefix(""), plan_.config().allocator.name, i / s.kv_heads,
                i % s.kv_heads, budgets_[i], budgets_[i - 1], plan_.config().policy.name);
        }
    }
}

// Computes what the policy needs of the first `layers` layers and reads it in one go.
void CacheManager::read_inputs(uint32_t layers) {
    const KvShape &s = plan_.shape();
    const int64_t rows = int64_t{layers} * s.kv_heads;
    const auto compute = [&](PlannedOp *op, uint64_t features, Tensor &device, std::vector<float> &host) {
        if (op == nullptr) return;
        if (device.empty()) {
            device = Tensor::allocate(plan_.executor().device(), KEEL_DTYPE_F32,
                                      {int64_t{s.layers} * s.kv_heads, s.max_slots}, placement_);
        }
        const Tensor used(device.buffer(), 0, KEEL_DTYPE_F32, {rows, stride_});
        for (uint32_t l = 0; l < layers; ++l) {
            const Tensor out = used.rows(int64_t{l} * s.kv_heads, s.kv_heads);
            keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
            args.features = features;
            args.kv = cache_->view(l);
            args.out = out.c();
            args.end = stride_;
            plan_.executor().run(*op, args);
        }
        host.resize(static_cast<size_t>(rows * stride_));
    };
    compute(plan_.key_norms(), KEEL_KEYS_NORMS, key_norms_, host_key_norms_);
    compute(plan_.value_norms(), 0, value_norms_, host_value_norms_);
    const auto read = [&](const Tensor &device, std::vector<float> &host) {
        if (device.empty()) return;
        Tensor(device.buffer(), 0, KEEL_DTYPE_F32, {rows, stride_}).read(host.data());
    };
    read(key_norms_, host_key_norms_);
    read(value_norms_, host_value_norms_);
}

// mask_, lengths_ and slot_positions_ of a layer.
void CacheManager::protect(uint32_t layer) {
    const KvShape &s = plan_.shape();
    const CacheConfig &config = plan_.config();
    const size_t cells = s.kv_heads * static_cast<size_t>(stride_);
    mask_.assign(cells, 0);
    slot_positions_.assign(cells, 0);
    lengths_.resize(s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const int64_t length = cache_->length(layer, h);
        const auto row = static_cast<std::ptrdiff_t>(h * static_cast<size_t>(stride_));
        const auto positions = cache_->positions(layer, h);
        std::copy(positions.begin(), positions.end(), slot_positions_.begin() + row);
        const auto mask = mask_.begin() + row;
        std::fill(mask, mask + std::min(length, prefix_), uint8_t{1});
        std::fill(mask + std::max<int64_t>(0, length - config.protect_recent), mask + length, uint8_t{1});
        pins_.mark(size_t{layer} * s.kv_heads + h, length, &*mask);
        lengths_[h] = static_cast<int32_t>(length);
    }
}

void CacheManager::decide(uint32_t layer, keel_trigger trigger, EvictionRecord &record) {
    const KvShape &s = plan_.shape();
    protect(layer);
    const size_t cells = s.kv_heads * static_cast<size_t>(stride_);
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
    input.trigger = trigger;
    input.layer = layer;
    input.kv_heads = s.kv_heads;
    input.heads = s.heads;
    input.next_position = seen_;
    input.stride = stride_;
    input.lengths = lengths_.data();
    input.budgets = budgets_.data() + size_t{layer} * s.kv_heads;
    input.protected_mask = mask_.data();
    const uint64_t needs = plan_.needs().needs;
    if ((needs & KEEL_NEED_POSITIONS) != 0) input.positions = slot_positions_.data();
    if ((needs & KEEL_NEED_KEY_NORMS) != 0) input.key_norms = host_key_norms_.data() + layer * cells;
    if ((needs & KEEL_NEED_VALUE_NORMS) != 0) input.value_norms = host_value_norms_.data() + layer * cells;

    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision)};
    if (plan_.needs().output == KEEL_OUTPUT_SCORES) {
        // What a policy leaves out is found: NaN is an error.
        scores_.assign(cells, std::numeric_limits<float>::quiet_NaN());
        decision.scores = scores_.data();
    } else {
        listed_.assign(cells, -1);
        listed_counts_.assign(s.kv_heads, 0);
        decision.keep = listed_.data();
        decision.keep_count = listed_counts_.data();
    }
    policy_->decide(input, decision);
    read_decision(layer, decision, record);
}

// The policy's answer as checked keep-lists in keep_[layer].
void CacheManager::read_decision(uint32_t layer, const keel_policy_decision &, EvictionRecord &record) {
    const KvShape &s = plan_.shape();
    const keel_granularity granularity = plan_.needs().granularity;
    const bool shared = granularity == KEEL_KEEP_TOKEN || granularity == KEEL_KEEP_LAYER;
    KeepLists &keep = keep_[layer];
    keep.resize(s.kv_heads);
    for (uint32_t h = 0; h < (shared ? 1 : s.kv_heads); ++h) {
        const size_t row = h * static_cast<size_t>(stride_);
        const HeadBudget head = {lengths_[h], budgets_[size_t{layer} * s.kv_heads + h], mask_.data() + row};
        const std::string who =
            fmt::format("{}policy {}, layer {}, head {}", plan_.config().policy.places.prefix(""),
                        plan_.config().policy.name, layer, h);
        if (plan_.needs().output == KEEL_OUTPUT_SCORES) {
            keep_best(head, scores_.data() + row, who, order_, keep[h]);
            continue;
        }
        const int32_t count = listed_counts_[h];
        if (count < 0 || count > head.length) {
            throw_error(ErrorKind::plugin, "{}: a keep-list of {} slots, the head has {}", who, count,
                        head.length);
        }
        keep_listed(head, {listed_.data() + row, static_cast<size_t>(count)}, who, keep[h]);
    }
    for (uint32_t h = 1; shared && h < s.kv_heads; ++h)
        keep[h] = keep[0];
    if (granularity == KEEL_KEEP_HEAD_EQUAL && !plan_.has_ragged_budgets()) equalize(layer, keep);
    if (plan_.needs().output == KEEL_OUTPUT_SCORES)
        record.summarize(scores_, lengths_, stride_, shared ? 1 : s.kv_heads);
}

// Heads of a layer that have to keep equally many: as many as the head with the fewest.
void CacheManager::equalize(uint32_t layer, KeepLists &keep) {
    const int64_t count = shortest_kept(keep);
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const HeadBudget head = {lengths_[h], budgets_[size_t{layer} * keep.size() + h],
                                 mask_.data() + h * static_cast<size_t>(stride_)};
        cut_oldest(head, count, keep[h]);
    }
}

// Moves the cache to keep_, then the keys' rotations; finishes the records and drops those of layers where all stayed.
void CacheManager::compact(std::vector<EvictionRecord> &records) {
    // A fork's shared blocks have to be copied: if kv.max_mib has no room for that, nothing is moved at all.
    std::string why;
    if (!cache_->can_compact(keep_, &why)) throw_error(ErrorKind::resource, "{}", why);
    for (EvictionRecord &record : records) {
        const auto begin = Clock::now();
        const KeepLists &keep = keep_[record.layer];
        note_tail(record.layer, keep);
        note_compact(record.layer, keep);
        record.kept_min = shortest_kept(keep);
        for (const auto &list : keep)
            record.kept_max = std::max(record.kept_max, std::ssize(list));
        record.freed_bytes = cache_->compact(record.layer, keep, *plan_.gather());
        record.microseconds += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
    cache_->publish();
    const int64_t slack = plan_.budget(seen_, prefix_).slack;
    for (EvictionRecord &record : records) {
        if (!rerotation_ || !should_close(record.layer, slack)) continue;
        const auto begin = Clock::now();
        record.moved_keys = rerotation_->close(*cache_, record.layer);
        record.microseconds += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
    std::erase_if(records, [](const EvictionRecord &r) { return r.kept_min == r.held_max; });
    if (records.empty()) return;
    ++evictions_;
    int64_t most = 0;
    for (EvictionRecord &record : records) {
        most = std::max(most, record.held_max - record.kept_min);
        evicted_bytes_ += record.freed_bytes;
        if (plan_.log() == nullptr) continue;
        note_kept(record);
        plan_.log()->write(record);
    }
    evicted_slots_ += static_cast<uint64_t>(most);
    trace_eviction(plan_.executor().stream().trace(), *cache_, records);
}

bool CacheManager::should_close(uint32_t layer, int64_t slack) const {
    const CacheConfig &config = plan_.config();
    if (config.positions == KvPositions::rerotated) return true;
    if (config.trained_context <= 0) return false;
    int64_t oldest = seen_;
    for (uint32_t h = 0; h < plan_.shape().kv_heads; ++h) {
        const auto positions = cache_->positions(layer, h);
        if (!positions.empty()) oldest = std::min<int64_t>(oldest, positions.front());
    }
    return seen_ + slack + 1 - oldest > config.trained_context;
}

void CacheManager::note_tail(uint32_t layer, const KeepLists &keep) {
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const int64_t length = cache_->length(layer, h), kept = std::ssize(keep[h]);
        int64_t run = 0;
        while (run < kept && run < tail_ && keep[h][static_cast<size_t>(kept - 1 - run)] == length - 1 - run)
            ++run;
        tail_ = std::min(tail_, run);
    }
}

} // namespace keel
