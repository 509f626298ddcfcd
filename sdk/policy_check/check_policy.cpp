#include "policy_check/check.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

namespace keel::policy_check {
namespace {

constexpr uint64_t all_needs = (uint64_t{1} << 13) - 1;
constexpr uint32_t all_flags = 127;

// The properties of one layer for which the policy decides.
struct PolicyCase {
    std::string name;
    std::vector<int32_t> lengths, budgets; // [kv_heads]
    enum class Values { usual, zero, equal, large } values = Values::usual;
    int32_t protected_first = 2;
    keel_trigger trigger = KEEL_TRIGGER_PREFILL_END;
    uint32_t layer = 0;
    uint64_t seed = 1;
};

// The inputs of a case: exactly the inputs that the policy needs. Elements at or after a head's
// length are `garbage`.
class Inputs {
  public:
    Inputs(const PolicyCase &of, const Model &model, const keel_policy_needs &needs,
           float garbage) {
        const size_t h = model.kv_heads, d = model.head_dim;
        const int32_t longest = *std::max_element(of.lengths.begin(), of.lengths.end());
        in.h = KEEL_HEADER(keel_policy_input);
        in.trigger = of.trigger;
        in.layer = of.layer;
        in.kv_heads = model.kv_heads;
        in.heads = model.heads;
        in.next_position = longest + 5;
        in.stride = longest + 2;
        lengths_ = of.lengths;
        budgets_ = of.budgets;
        in.lengths = lengths_.data();
        in.budgets = budgets_.data();
        stride_ = static_cast<size_t>(in.stride);
        mask_.assign(h * stride_, 0);
        for (size_t row = 0; row < h; ++row)
            std::fill_n(mask_.begin() + static_cast<std::ptrdiff_t>(row * stride_),
                        std::min(of.protected_first, of.lengths[row]), uint8_t{1});
        in.protected_mask = mask_.data();

        const auto wants = [&](uint64_t bit) { return (needs.needs & bit) != 0; };
        const auto number = [&](uint64_t salt, size_t i, double low, double high) {
            switch (of.values) {
            case PolicyCase::Values::zero: return 0.0;
            case PolicyCase::Values::equal: return high / 2;
            case PolicyCase::Values::large:
                return (low + (high - low) * uniform(of.seed + salt, i)) * 1e4;
            default: return low + (high - low) * uniform(of.seed + salt, i);
            }
        };
        // In each row, a slot has `width` numbers.
        const auto slots = [&](const float *&member, uint64_t salt, size_t rows, size_t width,
                               double low, double high) {
            auto &array = arrays_.emplace_back(
                std::make_unique<std::vector<float>>(rows * stride_ * width, garbage));
            for (size_t row = 0; row < rows; ++row) {
                const int32_t length = of.lengths[row * h / rows];
                for (size_t i = 0; i < static_cast<size_t>(length) * width; ++i)
                    (*array)[row * stride_ * width + i] =
                        static_cast<float>(number(salt, row * 65536 + i, low, high));
            }
            member = array->data();
        };
        const auto plain = [&](const float *&member, uint64_t salt, size_t n, double low,
                               double high) {
            auto &array = arrays_.emplace_back(std::make_unique<std::vector<float>>(n));
            for (size_t i = 0; i < n; ++i)
                (*array)[i] = static_cast<float>(number(salt, i, low, high));
            member = array->data();
        };
        if (wants(KEEL_NEED_POSITIONS)) {
            positions_.assign(h * stride_, -1);
            for (size_t row = 0; row < h; ++row)
                for (int32_t t = 0; t < of.lengths[row]; ++t)
                    positions_[row * stride_ + static_cast<size_t>(t)] =
                        t + (t > 3 ? 2 : 0); // leaves a gap after position 3
            in.positions = positions_.data();
        }
        if (wants(KEEL_NEED_KEY_NORMS)) slots(in.key_norms, 1, h, 1, 0, 3);
        if (wants(KEEL_NEED_VALUE_NORMS)) slots(in.value_norms, 2, h, 1, 0, 3);
        if (wants(KEEL_NEED_WINDOW_SCORES | KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY)) {
            slots(in.scores, 3, needs.reduce_group == KEEL_REDUCE_NONE ? model.heads : h, 1, 0, 1);
            in.query_count =
                wants(KEEL_NEED_WINDOW_SCORES) ? std::min<int64_t>(longest, needs.window) : longest;
        }
        if (wants(KEEL_NEED_KEY_SUM)) plain(in.key_sum, 4, h * d, -3, 3);
        if (wants(KEEL_NEED_KEY_ANCHOR)) slots(in.key_anchor, 5, h, 1, -3, 3);
        if (wants(KEEL_NEED_KEY_PROJECT)) slots(in.key_project, 6, h, needs.projection_cols, -2, 2);
        if (wants(KEEL_NEED_KEYS)) slots(in.keys, 7, h, d, -2, 2);
        if (wants(KEEL_NEED_CHUNK_SCORES)) slots(in.chunk_scores, 8, h, 1, 0, 5);
        if (wants(KEEL_NEED_QUERY_STATS)) query_stats(model, needs, longest, of);
    }
    Inputs(const Inputs &) = delete;

    keel_policy_input in = {};

  private:
    // The sums are made from generated queries, so that first and second moments are consistent.
    void query_stats(const Model &model, const keel_policy_needs &needs, int32_t longest,
                     const PolicyCase &of) {
        const size_t d = model.head_dim;
        in.query_count = std::max<int64_t>(0, longest - int64_t{needs.skip_queries});
        auto &sum = arrays_.emplace_back(std::make_unique<std::vector<float>>(model.heads * d));
        float *sums = sum->data();
        auto &second =
            arrays_.emplace_back(std::make_unique<std::vector<float>>(model.heads * d * d));
        for (size_t h = 0; h < model.heads; ++h) {
            for (int64_t n = 0; n < in.query_count; ++n) {
                std::vector<float> q(d);
                for (size_t i = 0; i < d; ++i) {
                    const double x =
                        of.values == PolicyCase::Values::zero
                            ? 0
                            : 2 * uniform(of.seed + 9,
                                          (h * 4096 + static_cast<size_t>(n)) * d + i) -
                                  1;
                    q[i] = static_cast<float>(of.values == PolicyCase::Values::large ? 1e4 * x : x);
                    sums[h * d + i] += q[i];
                }
                for (size_t i = 0; i < d * d; ++i) (*second)[h * d * d + i] += q[i / d] * q[i % d];
            }
        }
        in.query_sum = sums;
        in.query_second = second->data();
    }

    size_t stride_ = 0;
    std::vector<int32_t> lengths_, budgets_, positions_;
    std::vector<uint8_t> mask_;
    std::vector<std::unique_ptr<std::vector<float>>> arrays_;
};

// The answer of a policy, for the slots below the lengths.
struct Answer {
    keel_status status = KEEL_OK;
    std::vector<float> scores;
    std::vector<uint8_t> stay;
    std::vector<int32_t> keep, counts;
    bool operator==(const Answer &) const = default;
};

class PolicyChecker {
  public:
    PolicyChecker(const PluginLibrary &plugin, const ParamValues &params, const Model &model,
                  uint64_t seed, Report &report)
        : table_(plugin.policy()), params_(params), model_(model), geometry_(model), seed_(seed),
          report_(report) {}

    void run();

  private:
    struct State { // owns the plugin's state of one sequence
        State(const keel_policy &a_table, keel_policy_state *a_state)
            : table(a_table), state(a_state) {}
        State(const State &) = delete;
        ~State() { table.destroy(state); }
        const keel_policy &table;
        keel_policy_state *state;
    };
    using StatePtr = std::unique_ptr<State>;

    std::string at(const std::string &what) const { return model_.name() + ": " + what; }
    void expect(bool holds, const std::string &what) { report_.expect(holds, at(what)); }
    bool shares_rows() const {
        return needs_.granularity == KEEL_KEEP_TOKEN || needs_.granularity == KEEL_KEEP_LAYER;
    }

    StatePtr make(const HostServices &host, keel_policy_needs &needs, const keel_geometry *geometry,
                  uint64_t seed);
    StatePtr make(const HostServices &host, keel_policy_needs &needs,
                  const keel_geometry *geometry) {
        return make(host, needs, geometry, seed_);
    }
    StatePtr make() {
        keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
        return make(host_, needs, &geometry_.c);
    }
    void check_needs();
    std::vector<PolicyCase> cases() const;
    Answer ask(State &state, const PolicyCase &of, const keel_policy_input *in, Report &report,
               bool with_stay = true) const;
    Answer ask(State &state, const PolicyCase &of,
               float garbage = std::numeric_limits<float>::quiet_NaN()) {
        const Inputs inputs(of, model_, needs_, garbage);
        return ask(state, of, &inputs.in, report_);
    }
    void check_case(const PolicyCase &of);
    void check_states(const PolicyCase &of);
    void check_ages(const PolicyCase &of);
    void check_threads(const PolicyCase &of);

    const keel_policy &table_;
    const ParamValues &params_;
    Model model_;
    ModelGeometry geometry_;
    uint64_t seed_;
    Report &report_;
    HostServices host_{2};
    keel_policy_needs needs_ = {KEEL_HEADER(keel_policy_needs)};
    StatePtr first_; // the state owns needs_.projection
};

PolicyChecker::StatePtr PolicyChecker::make(const HostServices &host, keel_policy_needs &needs,
                                            const keel_geometry *geometry, uint64_t seed) {
    HostServices::drop_error();
    keel_policy_state *state = nullptr;
    const keel_status status =
        table_.create(host.table(), geometry, params_.data(), params_.size(), seed, &needs, &state);
    if (!passed(report_, status, at("create"))) return nullptr;
    return std::make_unique<State>(table_, state);
}

void PolicyChecker::check_needs() {
    expect((needs_.needs & ~all_needs) == 0, "needs has bits that policy.h does not know");
    expect((needs_.flags & ~all_flags) == 0, "flags has bits that policy.h does not know");
    expect(needs_.granularity >= KEEL_KEEP_TOKEN && needs_.granularity <= KEEL_KEEP_HEAD_RAGGED,
           "granularity is not in 1 to 4");
    expect(needs_.output == KEEL_OUTPUT_SCORES || needs_.output == KEEL_OUTPUT_KEEP,
           "output is neither scores nor keep-lists");
    const auto wants = [&](uint64_t bit) { return (needs_.needs & bit) != 0; };
    const int sources =
        wants(KEEL_NEED_WINDOW_SCORES) + wants(KEEL_NEED_RUNNING_SCORES) + wants(KEEL_NEED_REPLAY);
    expect(sources <= 1,
           "WINDOW_SCORES, RUNNING_SCORES and REPLAY exclude each other; need only one");
    expect(!wants(KEEL_NEED_WINDOW_SCORES) || needs_.window > 0,
           "WINDOW_SCORES needs a window above 0");
    expect(sources == 0 || (needs_.reduce_queries >= KEEL_REDUCE_SUM &&
                            needs_.reduce_queries <= KEEL_REDUCE_MAX),
           "scores need reduce_queries sum, mean or max");
    expect(sources == 0 || needs_.reduce_group <= KEEL_REDUCE_MAX,
           "reduce_group is none of keel_reduce_e");
    expect(!wants(KEEL_NEED_CHUNK_SCORES) || needs_.chunk > 0,
           "CHUNK_SCORES needs a chunk above 0");
    expect(!wants(KEEL_NEED_REPLAY) || needs_.replay_chunk > 0,
           "REPLAY needs a replay_chunk above 0");
    expect((needs_.flags & KEEL_POLICY_KVPRESS_WORDS) == 0 || wants(KEEL_NEED_REPLAY),
           "KVPRESS_WORDS needs REPLAY");
    expect(!wants(KEEL_NEED_UNROTATED) || wants(KEEL_NEED_KEY_PROJECT | KEEL_NEED_KEYS),
           "UNROTATED needs KEY_PROJECT or KEYS");
    expect((needs_.flags & KEEL_POLICY_PREFILL_ONLY) == 0 ||
               (needs_.flags & KEEL_POLICY_BLOCKWISE) == 0,
           "PREFILL_ONLY and BLOCKWISE exclude each other");
    if (!wants(KEEL_NEED_KEY_PROJECT)) return;
    expect(needs_.projection_cols > 0 && needs_.projection != nullptr,
           "KEY_PROJECT needs a projection");
    if (needs_.projection == nullptr) return;
    bool finite = true;
    for (size_t i = 0; i < size_t{model_.head_dim} * needs_.projection_cols; ++i)
        finite = finite && std::isfinite(needs_.projection[i]);
    expect(finite, "the projection is not finite");
}

std::vector<PolicyCase> PolicyChecker::cases() const {
    const uint32_t n = model_.kv_heads;
    std::vector<PolicyCase> all;
    const auto add = [&](std::string name, std::vector<int32_t> lengths,
                         std::vector<int32_t> budgets) -> PolicyCase & {
        return all.emplace_back(
            PolicyCase{std::move(name), std::move(lengths), std::move(budgets)});
    };
    const auto same = [n](int32_t x) { return std::vector<int32_t>(n, x); };
    add("43 slots, budget 17", same(43), same(17));
    add("300 slots, budget 100", same(300), same(100)).layer = model_.layers - 1;
    add("no slots", same(0), same(9));
    add("one slot", same(1), same(1)).protected_first = 0;
    add("one slot, no budget", same(1), same(0)).protected_first = 0;
    add("as many slots as the budget", same(20), same(20));
    add("fewer slots than the budget", same(20), same(1000));
    add("a budget of one", same(33), same(1));
    add("all protected", same(25), same(9)).protected_first = 25;
    add("all zeros", same(43), same(17)).values = PolicyCase::Values::zero;
    add("all equal", same(43), same(17)).values = PolicyCase::Values::equal;
    add("large numbers", same(43), same(17)).values = PolicyCase::Values::large;
    for (keel_trigger trigger = KEEL_TRIGGER_BUDGET; trigger <= KEEL_TRIGGER_CHUNK; ++trigger)
        add("trigger " + std::to_string(trigger), same(50), same(41)).trigger = trigger;
    if (!shares_rows()) {
        std::vector<int32_t> lengths, budgets;
        const int32_t some[] = {40, 1, 0, 23, 9, 64, 2, 5};
        for (uint32_t h = 0; h < n; ++h) {
            lengths.push_back(some[h % 8]);
            budgets.push_back(some[(h + 3) % 8]);
        }
        add("ragged lengths and budgets", lengths, budgets);
        for (int32_t &budget : budgets) budget += 100;
        add("ragged lengths below their budgets", lengths, budgets);
    }
    return all;
}

// Calls the policy and checks its answer.
Answer PolicyChecker::ask(State &state, const PolicyCase &of, const keel_policy_input *in,
                          Report &report, bool with_stay) const {
    const bool scores = needs_.output == KEEL_OUTPUT_SCORES;
    const size_t rows = shares_rows() ? 1 : model_.kv_heads,
                 stride = static_cast<size_t>(in->stride);
    Guarded<float> score_cells(scores ? rows * stride : 0, std::numeric_limits<float>::quiet_NaN());
    Guarded<uint8_t> stay_cells(scores ? rows * stride : 0, 0);
    Guarded<int32_t> keep_cells(scores ? 0 : rows * stride, -1),
        counts(scores ? 0 : model_.kv_heads, 0);
    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision)};
    decision.scores = scores ? score_cells.data() : nullptr;
    decision.stay = scores ? stay_cells.data() : nullptr;
    decision.keep = scores ? nullptr : keep_cells.data();
    decision.keep_count = scores ? nullptr : counts.data();
    OtherAge<keel_policy_decision> given(
        decision, with_stay ? sizeof decision : KEEL_PREFIX(keel_policy_decision, keep_count));
    const std::string what = model_.name() + ": " + of.name;
    HostServices::drop_error();
    Answer answer;
    answer.status = table_.decide(state.state, in, given.get());
    report.expect(score_cells.intact() && stay_cells.intact() && keep_cells.intact() &&
                      counts.intact(),
                  what + ": wrote outside the arrays");
    if (!passed(report, answer.status, what)) return answer;
    for (size_t row = 0; row < rows; ++row) {
        const auto length = static_cast<size_t>(of.lengths[row]);
        const std::string where = what + ", row " + std::to_string(row);
        if (!scores) {
            const int32_t count = counts[row];
            report.expect(count >= 0 && count <= of.lengths[row],
                          where + ": keeps " + std::to_string(count) + " slots");
            if (count < 0 || count > of.lengths[row]) continue;
            int32_t last = -1;
            bool rising = true;
            for (int32_t i = 0; i < count; ++i) {
                const int32_t slot = keep_cells[row * stride + static_cast<size_t>(i)];
                rising = rising && slot > last && slot < of.lengths[row];
                last = slot;
                answer.keep.push_back(slot);
            }
            answer.counts.push_back(count);
            report.expect(rising,
                          where + ": the keep-list is not strictly rising within the slots");
            continue;
        }
        for (size_t t = 0; t < length; ++t) {
            const float score = score_cells[row * stride + t];
            const uint8_t mark = stay_cells[row * stride + t];
            report.expect(!std::isnan(score), where + ", slot " + std::to_string(t) +
                                                  ": the score is NaN, or was left out");
            report.expect(mark <= 1,
                          where + ", slot " + std::to_string(t) + ": stay is neither 0 nor 1");
            answer.scores.push_back(score);
            answer.stay.push_back(mark);
        }
    }
    return answer;
}

void PolicyChecker::check_case(const PolicyCase &of) {
    const StatePtr one = make(), two = make();
    if (!one || !two) return;
    const Answer answer = ask(*one, of);
    expect(ask(*two, of) == answer,
           of.name + ": two states with the same seed give different answers");
    if ((needs_.flags & KEEL_POLICY_SEEDED) == 0) {
        keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
        const StatePtr other = make(host_, needs, &geometry_.c, seed_ + 1);
        if (other)
            expect(ask(*other, of) == answer,
                   of.name + ": another seed changes the answer, but the flag SEEDED is not set");
    }
    const StatePtr three = make();
    if (three)
        expect(ask(*three, of, 1e30f) == answer,
               of.name + ": slots after the end of a head change the answer");
}

// Checks reset, fork, save and load. For this, it compares the decisions that the policy makes
// after these calls.
void PolicyChecker::check_states(const PolicyCase &of) {
    PolicyCase later = of;
    later.seed += 1;
    later.trigger = KEEL_TRIGGER_BUDGET;
    const auto fresh_answer = [&] {
        const StatePtr state = make();
        return state ? ask(*state, of) : Answer{};
    };
    const StatePtr state = make();
    if (!state) return;
    const Answer first = ask(*state, of);
    if (table_.fork != nullptr) {
        keel_policy_state *copy = nullptr;
        if (passed(report_, table_.fork(state->state, &copy), at("fork"))) {
            State other(table_, copy);
            const Answer of_copy = ask(other, later);
            expect(of_copy == ask(*state, later),
                   "a fork and the original state give different answers");
        }
    }
    if (table_.save != nullptr) {
        expect(table_.load != nullptr, "the table has save, but not load");
        uint64_t size = 0;
        if (table_.load != nullptr &&
            passed(report_, table_.save(state->state, nullptr, &size), at("save")) &&
            size < (1u << 28)) {
            Guarded<unsigned char> bytes(static_cast<size_t>(size), 0);
            uint64_t written = size;
            const StatePtr other = make();
            if (passed(report_, table_.save(state->state, bytes.data(), &written), at("save")) &&
                other &&
                passed(report_, table_.load(other->state, bytes.data(), written), at("load"))) {
                expect(bytes.intact() && written <= size,
                       "save wrote more bytes than the size that save reported");
                expect(ask(*other, later) == ask(*state, later),
                       "a loaded state and the saved state give different answers");
            }
            // The saved bytes belong to another plugin. The policy may refuse or load the bytes,
            // but it must not crash.
            const StatePtr third = make();
            if (third && size > 0)
                passed(report_, table_.load(third->state, bytes.data(), size / 2),
                       at("load of half a state"));
        }
    }
    if (table_.truncate != nullptr)
        passed(report_, table_.truncate(state->state, 3), at("truncate"));
    if (table_.reset != nullptr && passed(report_, table_.reset(state->state), at("reset")))
        expect(ask(*state, of) == first && first == fresh_answer(),
               "a state after reset and a new state give different answers");
    table_.destroy(nullptr);
}

// Tests hosts whose structs are shorter or longer than the plugin's structs.
void PolicyChecker::check_ages(const PolicyCase &of) {
    const StatePtr usual = make();
    if (!usual) return;
    const Answer answer = ask(*usual, of);
    const Inputs inputs(of, model_, needs_, 0.0f);
    const bool anchor = (needs_.needs & KEEL_NEED_KEY_ANCHOR) != 0,
               chunk = (needs_.needs & KEEL_NEED_CHUNK_SCORES) != 0;
    const uint32_t least = chunk    ? KEEL_PREFIX(keel_policy_input, chunk_scores)
                           : anchor ? KEEL_PREFIX(keel_policy_input, key_anchor)
                                    : KEEL_PREFIX(keel_policy_input, query_count);
    for (const uint32_t size : {least, static_cast<uint32_t>(sizeof(keel_policy_input) + 40)}) {
        OtherAge<keel_policy_input> in(inputs.in, size);
        const StatePtr state = make();
        if (state)
            expect(ask(*state, of, in.get(), report_) == answer,
                   "an input of " + std::to_string(size) + " bytes changes the answer");
    }
    if (needs_.output == KEEL_OUTPUT_SCORES) { // this host does not have the member `stay`
        const StatePtr state = make();
        if (state) {
            const Answer old = ask(*state, of, &inputs.in, report_, false);
            const bool stays = std::any_of(answer.stay.begin(), answer.stay.end(),
                                           [](uint8_t s) { return s != 0; });
            expect(
                old.status != KEEL_OK || (!stays && old.scores == answer.scores),
                "expected a host without the array stay to be refused or to get the same answer");
        }
    }
    for (const uint32_t size : {KEEL_PREFIX(keel_policy_needs, projection),
                                static_cast<uint32_t>(sizeof(keel_policy_needs) + 40)}) {
        OtherAge<keel_policy_needs> needs(keel_policy_needs{KEEL_HEADER(keel_policy_needs)}, size);
        const StatePtr state = make(host_, *needs.get(), &geometry_.c);
        expect(needs.intact(), "create wrote beyond the host's keel_policy_needs");
        expect(!state || (needs.get()->needs == needs_.needs && needs.get()->h.struct_size == size),
               "the needs are different for an older or newer host");
    }
    for (const uint32_t size :
         {KEEL_PREFIX(keel_geometry, context), static_cast<uint32_t>(sizeof(keel_geometry) + 40)}) {
        OtherAge<keel_geometry> geometry(geometry_.c, size);
        keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
        const StatePtr state = make(host_, needs, geometry.get());
        if (state) ask(*state, of);
    }
    keel_host poor = *host_.table(); // a host that has no memory
    poor.alloc = [](const keel_host *, uint64_t, uint64_t) -> void * { return nullptr; };
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    keel_policy_state *state = nullptr;
    const keel_status status =
        table_.create(&poor, &geometry_.c, params_.data(), params_.size(), seed_, &needs, &state);
    HostServices::drop_error();
    if (status == KEEL_OK) table_.destroy(state);
    expect(status == KEEL_OK || status == KEEL_E_OUT_OF_MEMORY,
           "create without memory returns " + status_name(status));
}

void PolicyChecker::check_threads(const PolicyCase &of) {
    const StatePtr usual = make();
    if (!usual) return;
    const Answer answer = ask(*usual, of);
    const Inputs inputs(of, model_, needs_, 0.0f);
    bool same[2] = {true, true};
    const auto work = [&](int index) {
        Report own;
        HostServices host(1);
        keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
        keel_policy_state *made = nullptr;
        {
            static std::mutex init; // create calls into one plugin must not run at the same time
            const std::lock_guard lock(init);
            if (table_.create(host.table(), &geometry_.c, params_.data(), params_.size(), seed_,
                              &needs, &made) != KEEL_OK) {
                same[index] = false;
                return;
            }
        }
        State state(table_, made);
        for (int i = 0; i < 5; ++i) {
            const Answer mine = ask(state, of, &inputs.in, own);
            if (i == 0) same[index] = mine == answer;
        }
    };
    std::thread one(work, 0), two(work, 1);
    one.join();
    two.join();
    expect(same[0] && same[1], "two states in parallel give other answers than one state alone, or "
                               "the answers depend on the number of workers");
}

void PolicyChecker::run() {
    first_ = make(host_, needs_, &geometry_.c);
    if (!first_) return;
    keel_policy_needs again = {KEEL_HEADER(keel_policy_needs)};
    const StatePtr second = make(host_, again, &geometry_.c);
    const bool same_projection =
        (needs_.projection == nullptr) == (again.projection == nullptr) &&
        (needs_.projection == nullptr ||
         std::equal(needs_.projection,
                    needs_.projection + size_t{model_.head_dim} * needs_.projection_cols,
                    again.projection));
    expect(second != nullptr && same_projection,
           "two states with the same seed have different projections");
    again.projection = needs_.projection;
    expect(std::memcmp(&again, &needs_, sizeof needs_) == 0,
           "two states with the same parameters and seed have different needs");
    const size_t before = report_.failures.size();
    check_needs();
    if (report_.failures.size() != before) return;
    const std::vector<PolicyCase> all = cases();
    for (const PolicyCase &of : all) check_case(of);
    check_states(all.front());
    check_ages(all.front());
    check_threads(all.front());
}

} // namespace

Report check_policy(const PluginLibrary &plugin, const ParamValues &params,
                    const std::vector<Model> &models, uint64_t seed) {
    Report report;
    size_t refused = 0;
    for (const Model &model : models) {
        const int64_t before = report.checks;
        PolicyChecker(plugin, params, model, seed, report).run();
        if (report.checks - before <= 1) ++refused;
    }
    report.expect(refused < models.size(),
                  "every model was refused; name one that fits with --model");
    return report;
}

} // namespace keel::policy_check
