// One eviction: the budget is shared out, each layer is decided on, the cache is compacted.
#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "kv/evict/keep_lists.hpp"
#include "kv/evict/kv_trace.hpp"
#include "kv/inputs/input_ops.hpp"
#include "kv/inputs/replay.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int64_t shortest_kept(const KeepLists &keep) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto &list : keep)
        least = std::min(least, std::ssize(list));
    return least;
}

} // namespace

std::span<const EvictionRecord> CacheManager::run_eviction(keel_trigger trigger, int64_t target) {
    const KvShape &s = plan_.shape();
    auto began = Clock::now();
    records_.clear();
    // An allocator that weighs scores is asked when they are there.
    share_out(target, plan_.allocator().by_scores ? ShareOut::evenly : ShareOut::by_lengths);
    if (!has_excess(trigger, target)) return {};
    // What is read waits for the stream in any case: what a step had still to do there is no part of the eviction.
    if (inputs_->reads()) {
        const auto waits = Clock::now();
        plan_.executor().stream().wait();
        began += Clock::now() - waits;
    }
    cache_->refresh();
    stride_ = cache_->max_length();
    const bool once = plan_.needs().granularity == KEEL_KEEP_TOKEN;
    if ((plan_.needs().needs & KEEL_NEED_REPLAY) != 0 && !replay()) {
        eviction_us_ += microseconds_since(began);
        return {};
    }
    inputs_->compute(*cache_, once ? 1 : s.layers, stride_, tail_, seen_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const auto when = std::chrono::system_clock::now();
    answers_.resize(plan_.allocator().by_scores ? s.layers : 1);
    asked_microseconds_.assign(s.layers, 0);
    if (plan_.allocator().by_scores) {
        for (uint32_t l = 0; l < s.layers; ++l)
            ask(l, trigger);
        share_out(target, ShareOut::by_scores);
    }
    // All is decided before anything moves: a policy that fails leaves the cache as it was.
    for (uint32_t l = 0; l < s.layers; ++l) {
        EvictionRecord record;
        if (once && l > 0) { // what the policy said once
            record = records_.front();
            record.microseconds = 0;
            keep_[l] = keep_[0];
        } else {
            const auto begin = Clock::now();
            if (!plan_.allocator().by_scores) ask(l, trigger);
            read_decision(l, record);
            record.microseconds = asked_microseconds_[l] + microseconds_since(begin);
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
    compact(records_, trigger);
    const double all = microseconds_since(began);
    eviction_us_ += all;
    if (!records_.empty()) note_eviction(all);
    // Prompts are far apart, and what was read of one is as large as the cache was: other evictions come soon and use it again.
    if (trigger == KEEL_TRIGGER_PREFILL_END) {
        policy_peak_ = policy_peak_bytes();
        answers_ = {};
        inputs_->release();
    }
    return records_;
}

// Counts what went, and tells the log. `microseconds`: the whole eviction; what was done for all layers together is spread over them.
void CacheManager::note_eviction(double microseconds) {
    double of_layers = 0;
    for (const EvictionRecord &record : records_)
        of_layers += record.microseconds;
    const double share = (microseconds - of_layers) / static_cast<double>(records_.size());
    ++evictions_;
    int64_t most = 0;
    for (EvictionRecord &record : records_) {
        record.microseconds += share;
        most = std::max(most, record.evicted_max);
        evicted_bytes_ += record.freed_bytes;
        if (plan_.log() != nullptr) note_kept(record);
        record.layer += plan_.config().first_layer; // as the model counts them
        if (plan_.log() != nullptr) plan_.log()->write(record);
    }
    evicted_slots_ += static_cast<uint64_t>(most);
    trace_eviction(plan_.executor().stream().trace(), *cache_, records_);
}

// Do all heads together hold more than the budget? Where they do not, shares of single heads are no reason to forget anything. But where a
// step has to fit, a head that is full is one, whatever the others hold.
bool CacheManager::has_excess(keel_trigger trigger, int64_t target) const {
    const KvShape &s = plan_.shape();
    if (trigger != KEEL_TRIGGER_INSERT || plan_.allocator().by_scores)
        return held_slots() > target * s.layers * s.kv_heads;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h)
            if (cache_->length(l, h) > budgets_[size_t{l} * s.kv_heads + h]) return true;
    }
    return false;
}

// budgets_ from a budget per head on average.
void CacheManager::share_out(int64_t target, ShareOut how) {
    const KvShape &s = plan_.shape();
    const size_t rows = size_t{s.layers} * s.kv_heads;
    budgets_.assign(rows, static_cast<int32_t>(std::min<int64_t>(target, s.max_slots)));
    if (!allocator_ || how == ShareOut::evenly) return;
    all_lengths_.resize(rows);
    for (size_t i = 0; i < rows; ++i) {
        all_lengths_[i] = static_cast<int32_t>(cache_->length(
            static_cast<uint32_t>(i / s.kv_heads), static_cast<uint32_t>(i % s.kv_heads)));
    }
    keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
    input.layers = s.layers;
    input.kv_heads = s.kv_heads;
    input.budget = budgets_[0];
    input.protected_slots = std::min<int64_t>(
        input.budget, std::max<int64_t>(protected_slots(), plan_.needs().least_budget));
    input.fixed_slots = std::min<int64_t>(input.budget, fixed_slots());
    input.lengths = all_lengths_.data();
    if (how == ShareOut::by_scores) add_scores(input);
    allocator_->allocate(input, budgets_);
    const keel_granularity granularity = plan_.needs().granularity;
    for (size_t i = 0; i < rows; ++i) {
        const bool same_layer = i % s.kv_heads != 0;
        const bool must_agree =
            granularity == KEEL_KEEP_TOKEN
                ? i > 0
                : same_layer && (granularity == KEEL_KEEP_LAYER || !plan_.allocator().ragged);
        if (must_agree && budgets_[i] != budgets_[i - 1]) {
            throw_error(ErrorKind::plugin,
                        "{}budget allocator {} gave layer {} head {} {} slots and the one before "
                        "{}; policy {} keeps "
                        "as many in both",
                        plan_.config().allocator.places.prefix(""), plan_.config().allocator.name,
                        i / s.kv_heads, i % s.kv_heads, budgets_[i], budgets_[i - 1],
                        plan_.config().policy.name);
        }
    }
}

// Slots of a head that nobody chooses among: what is protected and what the policy keeps of itself, which is its least budget but for one,
// at the end as far as it looks at the newest tokens, else at the front.
int64_t CacheManager::fixed_slots() const {
    const keel_policy_needs &needs = plan_.needs();
    const int64_t own = std::max<int64_t>(0, int64_t{needs.least_budget} - 1);
    const int64_t newest = std::min<int64_t>(own, needs.window);
    return std::max(prefix_, own - newest) + std::max(plan_.config().protect_recent, newest) +
           pins_.count(prefix_);
}

// What the policy gave each layer, for an allocator: a row that all heads share is there for each of them.
void CacheManager::add_scores(keel_allocator_input &input) {
    const KvShape &s = plan_.shape();
    const auto width = static_cast<size_t>(stride_);
    score_rows_.clear();
    mask_rows_.clear();
    int64_t most = input.protected_slots;
    for (Answer &answer : answers_) {
        for (uint32_t h = 1; plan_.needs().granularity == KEEL_KEEP_LAYER && h < s.kv_heads; ++h) {
            std::copy_n(answer.scores.begin(), width,
                        answer.scores.begin() + static_cast<std::ptrdiff_t>(h * width));
            std::copy_n(answer.stay.begin(), width,
                        answer.stay.begin() + static_cast<std::ptrdiff_t>(h * width));
        }
        answer.held = answer.mask;
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            int64_t held = 0;
            for (size_t j = h * width; j < h * width + static_cast<size_t>(answer.lengths[h]);
                 ++j) {
                if (std::isnan(answer.scores[j])) {
                    throw_error(ErrorKind::plugin, "{}: the score of slot {} is NaN",
                                name_of(static_cast<uint32_t>(&answer - answers_.data()), h),
                                j - h * width);
                }
                answer.held[j] = answer.held[j] | answer.stay[j];
                held += answer.held[j];
            }
            most = std::max(most, held);
        }
        score_rows_.push_back(answer.scores.data());
        mask_rows_.push_back(answer.held.data());
    }
    input.protected_slots = std::min(most, input.budget);
    input.stride = stride_;
    input.scores = score_rows_.data();
    input.protected_masks = mask_rows_.data();
}

// Scores of a replay, for inputs_ to hand over. False: it was cancelled, so nothing is evicted.
bool CacheManager::replay() {
    if (replayer_ == nullptr)
        throw_error(ErrorKind::internal, "policy {} without anybody to replay for it",
                    plan_.config().policy.name);
    const auto numbers = [this](uint32_t layer, uint32_t head) {
        return numbers_ ? numbers_->row(size_t{layer} * plan_.shape().kv_heads + head)
                        : cache_->positions(layer, head);
    };
    const Tensor &scores = inputs_->replay_scores();
    Replay replay(plan_, *cache_, *replayer_, numbers, scores, placement_);
    const bool is_whole = replay.run(seen_);
    peak_bytes_ = std::max(peak_bytes_, replay.peak_bytes());
    cache_->refresh();
    return is_whole;
}

std::string CacheManager::name_of(uint32_t layer, uint32_t head) const {
    const auto &policy = plan_.config().policy;
    return fmt::format("{}policy {}, layer {}, head {}", policy.places.prefix(""), policy.name,
                       layer + plan_.config().first_layer, head);
}

// Mask, lengths and positions of a layer.
void CacheManager::protect(uint32_t layer, Answer &answer) {
    const KvShape &s = plan_.shape();
    const CacheConfig &config = plan_.config();
    const size_t cells = s.kv_heads * static_cast<size_t>(stride_);
    const bool wants_positions = (plan_.needs().needs & KEEL_NEED_POSITIONS) != 0;
    answer.mask.assign(cells, 0);
    if (wants_positions) answer.positions.assign(cells, 0);
    answer.lengths.resize(s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const int64_t length = cache_->length(layer, h);
        const auto row = static_cast<std::ptrdiff_t>(h * static_cast<size_t>(stride_));
        const auto positions = cache_->positions(layer, h);
        if (wants_positions)
            std::copy(positions.begin(), positions.end(), answer.positions.begin() + row);
        const auto mask = answer.mask.begin() + row;
        std::fill(mask, mask + std::min(length, prefix_), uint8_t{1});
        std::fill(mask + std::max<int64_t>(0, length - config.protect_recent), mask + length,
                  uint8_t{1});
        pins_.mark(size_t{layer} * s.kv_heads + h, length, &*mask);
        answer.lengths[h] = static_cast<int32_t>(length);
    }
}

CacheManager::Answer &CacheManager::answer(uint32_t layer) {
    return answers_[answers_.size() == 1 ? 0 : layer];
}

// Asks the policy about a layer.
void CacheManager::ask(uint32_t layer, keel_trigger trigger) {
    const auto begin = Clock::now();
    const KvShape &s = plan_.shape();
    Answer &answer = this->answer(layer);
    protect(layer, answer);
    const size_t cells = s.kv_heads * static_cast<size_t>(stride_);
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
    input.trigger = trigger;
    input.layer = layer + plan_.config().first_layer;
    input.kv_heads = s.kv_heads;
    input.heads = s.heads;
    input.next_position = seen_;
    input.stride = stride_;
    input.lengths = answer.lengths.data();
    input.budgets = budgets_.data() + size_t{layer} * s.kv_heads;
    input.protected_mask = answer.mask.data();
    if ((plan_.needs().needs & KEEL_NEED_POSITIONS) != 0) input.positions = answer.positions.data();
    inputs_->fill(*cache_, layer, input);

    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision)};
    if (plan_.needs().output == KEEL_OUTPUT_SCORES) {
        // What a policy leaves out is found: NaN is an error.
        answer.scores.assign(cells, std::numeric_limits<float>::quiet_NaN());
        answer.stay.assign(cells, 0);
        decision.scores = answer.scores.data();
        decision.stay = answer.stay.data();
    } else {
        answer.listed.assign(cells, -1);
        answer.counts.assign(s.kv_heads, 0);
        decision.keep = answer.listed.data();
        decision.keep_count = answer.counts.data();
    }
    policy_->decide(input, decision);
    if (plan_.allocator().by_scores) asked_microseconds_[layer] = microseconds_since(begin);
}

// The policy's answer as checked keep-lists in keep_[layer].
void CacheManager::read_decision(uint32_t layer, EvictionRecord &record) {
    const KvShape &s = plan_.shape();
    const Answer &answer = this->answer(layer);
    const keel_granularity granularity = plan_.needs().granularity;
    const bool shared = granularity == KEEL_KEEP_TOKEN || granularity == KEEL_KEEP_LAYER;
    KeepLists &keep = keep_[layer];
    keep.resize(s.kv_heads);
    uint32_t h = 0;
    const Who who([&] { return name_of(layer, h); });
    for (h = 0; h < (shared ? 1 : s.kv_heads); ++h) {
        const size_t row = h * static_cast<size_t>(stride_);
        HeadBudget head = {answer.lengths[h], budgets_[size_t{layer} * s.kv_heads + h],
                           answer.mask.data() + row};
        if (plan_.needs().output == KEEL_OUTPUT_SCORES) {
            head.stays = answer.stay.data() + row;
            keep_best(head, answer.scores.data() + row, who, order_, keep[h]);
            continue;
        }
        const int32_t count = answer.counts[h];
        if (count < 0 || count > head.length) {
            throw_error(ErrorKind::plugin, "{}: a keep-list of {} slots, the head has {}",
                        who.text(), count, head.length);
        }
        keep_listed(head, {answer.listed.data() + row, static_cast<size_t>(count)}, who, keep[h]);
    }
    for (h = 1; shared && h < s.kv_heads; ++h)
        keep[h] = keep[0];
    if (granularity == KEEL_KEEP_HEAD_EQUAL && !plan_.allocator().ragged) equalize(layer, keep);
    if (plan_.needs().output == KEEL_OUTPUT_SCORES)
        record.summarize(answer.scores, answer.lengths, stride_, shared ? 1 : s.kv_heads);
}

// Heads of a layer that have to keep equally many: as many as the head with the fewest.
void CacheManager::equalize(uint32_t layer, KeepLists &keep) {
    const int64_t count = shortest_kept(keep);
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const HeadBudget head = {answer(layer).lengths[h],
                                 budgets_[size_t{layer} * keep.size() + h],
                                 answer(layer).mask.data() + h * static_cast<size_t>(stride_)};
        cut_oldest(head, count, keep[h]);
    }
}

// Moves the cache to keep_, then the keys' rotations; finishes the records and drops those of layers where all stayed.
void CacheManager::compact(std::vector<EvictionRecord> &records, keel_trigger trigger) {
    // A fork's shared blocks have to be copied: if kv.max_mib has no room for that, nothing is moved at all.
    std::string why;
    if (!cache_->can_compact(keep_, &why)) throw_error(ErrorKind::resource, "{}", why);
    if (rerotation_ && !rerotation_->can_hold(*cache_, keep_, &why))
        throw_error(ErrorKind::resource, "{}", why);
    for (EvictionRecord &record : records) {
        const auto begin = Clock::now();
        const KeepLists &keep = keep_[record.layer];
        note_tail(record.layer, keep);
        note_compact(record.layer, keep);
        if (rerotation_) rerotation_->note_compact(record.layer, keep);
        record.kept_min = shortest_kept(keep);
        for (uint32_t h = 0; h < keep.size(); ++h) {
            const int64_t kept = std::ssize(keep[h]), gone = cache_->length(record.layer, h) - kept;
            record.kept_max = std::max(record.kept_max, kept);
            record.evicted += gone;
            record.evicted_max = std::max(record.evicted_max, gone);
        }
        record.freed_bytes =
            cache_->compact(record.layer, keep, *plan_.gather(), inputs_->sides(record.layer));
        record.microseconds += microseconds_since(begin);
    }
    cache_->publish();
    inputs_->compacted(*cache_);
    const int64_t coming = tokens_to_come(trigger);
    for (EvictionRecord &record : records) {
        if (!rerotation_ || !should_close(record.layer, coming)) continue;
        const auto begin = Clock::now();
        record.moved_keys = rerotation_->close(*cache_, record.layer);
        record.microseconds += microseconds_since(begin);
    }
    std::erase_if(records, [](const EvictionRecord &r) { return r.evicted == 0; });
}

// How many tokens may come before the next eviction: as many as there is room for, unless a trigger fires sooner.
int64_t CacheManager::tokens_to_come(keel_trigger trigger) const {
    const CacheConfig &config = plan_.config();
    const int64_t room = std::max<int64_t>(plan_.shape().max_slots - cache_->max_length(), 1);
    if (plan_.prefill_only()) return room;
    int64_t coming = room;
    if (config.at_budget) coming = std::min(coming, plan_.budget().at(seen_, prefix_).slack + 1);
    if (config.every_n) coming = std::min(coming, std::max<int64_t>(*config.every_n, 1));
    // More of the prompt: of a chunk the last token is what fires.
    if (trigger == KEEL_TRIGGER_CHUNK) coming += step_tokens(plan_.executor(), plan_.shape()) - 1;
    return std::min(coming, room);
}

bool CacheManager::should_close(uint32_t layer, int64_t coming) const {
    const CacheConfig &config = plan_.config();
    if (config.positions == KvPositions::rerotated) return true;
    if (config.trained_context <= 0) return false;
    int64_t oldest = seen_;
    for (uint32_t h = 0; h < plan_.shape().kv_heads; ++h) {
        const auto positions = cache_->positions(layer, h);
        if (!positions.empty()) oldest = std::min<int64_t>(oldest, positions.front());
    }
    return seen_ + coming - oldest > config.trained_context;
}

void CacheManager::note_tail(uint32_t layer, const KeepLists &keep) {
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const int64_t length = cache_->length(layer, h), kept = std::ssize(keep[h]);
        int64_t run = 0;
        while (run < kept && run < tail_ &&
               keep[h][static_cast<size_t>(kept - 1 - run)] == length - 1 - run)
            ++run;
        tail_ = std::min(tail_, run);
    }
}

} // namespace keel
