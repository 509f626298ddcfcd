#include "kv/evict/cache_plan.hpp"

#include "base/error.hpp"
#include "kv/evict/pinned_tokens.hpp"
#include "kv/evict/plugin_state.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

constexpr double mib = 1048576;

keel_geometry geometry_of(const KvShape &shape, const CacheConfig &config) {
    keel_geometry geometry = {KEEL_HEADER(keel_geometry)};
    geometry.layers = config.model_layers > 0 ? config.model_layers : shape.layers;
    geometry.heads = shape.heads;
    geometry.kv_heads = shape.kv_heads;
    geometry.head_dim = shape.head_dim;
    geometry.context = static_cast<uint32_t>(config.trained_context);
    if (config.local_rope_layers.empty() && !config.rope_frequencies.empty()) {
        geometry.rot = static_cast<uint32_t>(2 * config.rope_frequencies.size());
        geometry.rope_frequencies = config.rope_frequencies.data();
        geometry.rope_mode = config.rope_mode;
    }
    geometry.attention_scale = config.attention_scale > 0
                                   ? config.attention_scale
                                   : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    return geometry;
}

} // namespace

keel_policy_needs ask_policy(const CacheConfig &config, const KvShape &shape,
                             const HostServices &host, std::vector<float> *projection) {
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    if (config.policy.table == nullptr) {
        needs.granularity = KEEL_KEEP_TOKEN;
        needs.flags = KEEL_POLICY_KEEPS_ALL;
        return needs;
    }
    const keel_geometry geometry = geometry_of(shape, config);
    // A state to ask; each sequence makes its own.
    const PolicyState probe(config.policy, host.table(), geometry, config.seed, needs);
    if ((needs.needs & KEEL_NEED_KEY_PROJECT) != 0) {
        constexpr uint32_t most_columns = 4096;
        if (needs.projection == nullptr || needs.projection_cols == 0 ||
            needs.projection_cols > most_columns) {
            throw_error(ErrorKind::plugin,
                        "policy {} needs key_project with {} columns{}, expected 1 to {}",
                        config.policy.name, needs.projection_cols,
                        needs.projection == nullptr ? " of no matrix" : "", most_columns);
        }
        if (projection != nullptr)
            projection->assign(needs.projection,
                               needs.projection + size_t{shape.head_dim} * needs.projection_cols);
    }
    needs.projection = nullptr; // the probe's
    return needs;
}

CachePlan::CachePlan(Executor &executor, const KvShape &shape, std::shared_ptr<HostServices> host,
                     CacheConfig config, const Gathered &also)
    : executor_(executor), shape_(shape), host_(std::move(host)), config_(std::move(config)) {
    shape_.check();
    geometry_ = geometry_of(shape_, config_);
    needs_ = ask_policy(config_, shape_, *host_, &projection_);
    check_needs();
    gathered_ = Gathered::of(needs_);
    if (const char *need = gathered_.merge(also); need != nullptr) {
        throw_error(ErrorKind::input,
                    "{} cannot be collected for policy {} and for another one in one prefill", need,
                    config_.policy.name);
    }
    if (!keeps_all()) {
        check_allocator();
        check_budget();
        check_positions();
        plan_rerotation();
    }
    plan_ops();
    if (config_.shared_log) {
        log_ = config_.shared_log;
    } else if (!config_.log.empty()) {
        EvictionSource source = {config_.policy.name};
        if (!keeps_all() && config_.allocator.table != nullptr) {
            source.allocator = config_.allocator.name;
            source.allocator_params =
                params_json(config_.allocator.params, config_.allocator.n_params);
        }
        log_ = std::make_shared<EvictionLog>(config_.log, std::move(source));
    }
}

void CachePlan::check_needs() {
    const std::string &name = config_.policy.name;
    check_policy_needs(name, needs_, step_tokens(executor_, shape_), shape_.max_slots);
    if (keeps_all()) return;
    check_part();
    check_scores();
    if (config_.protect_prefix < 0 || config_.protect_recent < 0 ||
        protected_slots() >= (int64_t{1} << 30)) {
        throw_error(ErrorKind::input,
                    "policy.protect: prefix {} and recent {} are no numbers of tokens",
                    config_.protect_prefix, config_.protect_recent);
    }
    if (config_.every_n && *config_.every_n < 1)
        throw_error(ErrorKind::input, "policy.trigger.every_n: expected 1 or more, found {}",
                    *config_.every_n);
    if (prefill_only() && (config_.every_n || config_.at_insert)) {
        throw_error(ErrorKind::input,
                    "policy.trigger.on: policy {} acts at the end of the prompt only, so it never "
                    "answers {}; remove "
                    "it, or choose a policy that goes on evicting",
                    name, config_.every_n ? "every_n" : "insert");
    }
    if (prefill_only() && !config_.at_prefill_end) {
        throw_error(
            ErrorKind::input,
            "policy.trigger.on: policy {} acts at the end of the prompt only; add prefill_end",
            name);
    }
}

// A policy decides for each part of the layers apart, so it may not look at one layer for all of
// them.
void CachePlan::check_part() const {
    if (config_.model_layers == 0 || config_.model_layers == shape_.layers) return;
    const std::string &name = config_.policy.name;
    if (needs_.granularity == KEEL_KEEP_TOKEN && (needs_.needs & ~KEEL_NEED_POSITIONS) != 0) {
        throw_error(ErrorKind::input,
                    "hybrid.layers: policy {} decides for all layers by what it sees in the first, "
                    "and here two "
                    "backends hold them; choose a policy that decides layer by layer, or leave the "
                    "layers on "
                    "one backend",
                    name);
    }
    if ((needs_.needs & KEEL_NEED_REPLAY) != 0) {
        throw_error(
            ErrorKind::input,
            "hybrid.layers: policy {} has the model repeat its context, which layers on two "
            "backends "
            "cannot do in this version; choose another policy, or leave the layers on one backend",
            name);
    }
}

// attention_scores knows neither a window of the model nor soft-capping.
void CachePlan::check_scores() const {
    const uint64_t composed =
        needs_.needs & (KEEL_NEED_WINDOW_SCORES | KEEL_NEED_CHUNK_SCORES | KEEL_NEED_REPLAY);
    if (composed == 0) return;
    const int64_t longest = std::max(shape_.max_slots, config_.trained_context);
    const bool is_windowed = config_.attention_window > 0 && config_.attention_window < longest;
    if (!is_windowed && config_.attention_softcap == 0) return;
    throw_error(ErrorKind::input,
                "policy {} needs {}, which Keel does not compute for models with {}; choose a "
                "policy that reads keys "
                "or positions",
                config_.policy.name, need_name(composed & (0 - composed)),
                is_windowed ? fmt::format("attention windows ({} tokens)", config_.attention_window)
                            : std::string("soft-capped attention"));
}

void CachePlan::check_allocator() {
    if (config_.allocator.table == nullptr) return;
    keel_allocator_needs needs;
    const AllocatorState probe(config_.allocator, host_->table(), geometry_, needs);
    const std::string &name = config_.allocator.name;
    if ((needs.needs & ~KEEL_ALLOCATOR_NEED_SCORES) != 0) {
        throw_error(ErrorKind::input,
                    "budget allocator {} needs {:#x}, which this version of Keel does not hand to "
                    "allocators",
                    name, needs.needs & ~KEEL_ALLOCATOR_NEED_SCORES);
    }
    by_scores_ = (needs.needs & KEEL_ALLOCATOR_NEED_SCORES) != 0;
    if (by_scores_ &&
        (needs_.output != KEEL_OUTPUT_SCORES || needs_.granularity == KEEL_KEEP_TOKEN)) {
        throw_error(ErrorKind::input,
                    "policy.allocator: {} shares out by scores, policy {} gives {}; choose uniform",
                    name, config_.policy.name,
                    needs_.output != KEEL_OUTPUT_SCORES ? "keep-lists"
                                                        : "one set of them for all layers");
    }
    if ((needs.flags & KEEL_ALLOCATOR_COMPARES) != 0 &&
        (needs_.flags & KEEL_POLICY_COMPARABLE) == 0) {
        throw_error(ErrorKind::input,
                    "policy.allocator: {} weighs the scores of one head against another's, and "
                    "those of policy {} do "
                    "not compare across heads; set policy.allocator.params.normalize",
                    name, config_.policy.name);
    }
    const bool is_part = config_.model_layers > 0 && config_.model_layers != shape_.layers;
    if (is_part && needs.flags != 0) {
        throw_error(
            ErrorKind::input,
            "policy.allocator: {} shares the budget out over layers that hybrid.layers puts on two "
            "backends, each with a cache of its own; choose uniform, or leave the layers on one "
            "backend",
            name);
    }
    constexpr uint32_t known =
        KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_COMPARES | KEEL_ALLOCATOR_BY_LAYER;
    if ((needs.flags & ~known) != 0) {
        throw_error(
            ErrorKind::input,
            "budget allocator {} sets flags {:#x}, which this version of Keel does not know", name,
            needs.flags & ~known);
    }
    if ((needs.flags & KEEL_ALLOCATOR_BY_LAYER) != 0 && needs_.granularity == KEEL_KEEP_TOKEN) {
        throw_error(ErrorKind::input,
                    "policy.allocator: {} gives layers different budgets, policy {} keeps the same "
                    "slots in all "
                    "of them; choose uniform",
                    name, config_.policy.name);
    }
    ragged_ = (needs.flags & KEEL_ALLOCATOR_RAGGED) != 0;
    uneven_ = (needs.flags & (KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_BY_LAYER)) != 0;
    if (ragged_ && needs_.granularity < KEEL_KEEP_HEAD_EQUAL) {
        throw_error(ErrorKind::input,
                    "policy.allocator: {} gives the heads of a layer different budgets, policy {} "
                    "keeps the same "
                    "slots in all of them",
                    name, config_.policy.name);
    }
}

int64_t CachePlan::pinned_slots() const {
    return PinnedTokens(0, config_.pinned).count(config_.protect_prefix);
}

int64_t CachePlan::peak_slots(int64_t chunk) const {
    const int64_t capacity = capacity_slots();
    if (keeps_all() || !acts_in_prefill() || prefill_only() || !config_.at_budget ||
        config_.budget_unit == BudgetUnit::ratio)
        return capacity;
    const BudgetNow now = budget(0);
    const int64_t peak = std::min(capacity, now.tokens + now.slack + chunk);
    return mib_slots_ > 0 ? std::min(peak, mib_slots_) : peak;
}

uint64_t CachePlan::slot_row_bytes() const {
    const uint64_t block = shape_.block_bytes() + (keeps_pristine() ? shape_.key_block_bytes() : 0);
    return uint64_t{shape_.layers} * shape_.kv_heads * block;
}

int64_t CachePlan::capacity_slots() const {
    if (shape_.max_bytes == 0) return shape_.max_slots;
    const uint64_t row = slot_row_bytes();
    const uint64_t blocks = std::min<uint64_t>(shape_.max_bytes / row, uint64_t{1} << 30);
    return std::min(shape_.max_slots, static_cast<int64_t>(blocks) * shape_.block_slots);
}

void CachePlan::check_budget() {
    const int64_t least = protected_slots() + 1;
    std::string &key = budget_key_;
    switch (config_.budget_unit) {
    case BudgetUnit::none:
        if (needs_.own_budget == 0 && config_.slack) {
            throw_error(ErrorKind::input,
                        "policy.budget.slack: expected a budget beside it, found none; policy {} "
                        "needs one of "
                        "policy.budget.tokens, .ratio and .mib",
                        config_.policy.name);
        }
        if (needs_.own_budget == 0) {
            throw_error(
                ErrorKind::input,
                "policy.budget: policy {} needs one of policy.budget.tokens, .ratio and .mib",
                config_.policy.name);
        }
        key = fmt::format("policy.params (policy {} asks for {} slots)", config_.policy.name,
                          needs_.own_budget);
        fixed_ = config_.protect_prefix + pinned_slots() + int64_t{needs_.own_budget};
        break;
    case BudgetUnit::tokens:
        key = "policy.budget.tokens";
        fixed_ = static_cast<int64_t>(std::clamp(config_.budget, 0.0, 1e9));
        break;
    case BudgetUnit::ratio:
        if (!(config_.budget > 0 && config_.budget <= 1)) {
            throw_error(ErrorKind::input,
                        "policy.budget.ratio: expected a number above 0 and at most 1, found {}",
                        config_.budget);
        }
        key = "policy.protect";
        fixed_ =
            std::max<int64_t>(least, needs_.least_budget); // the smallest that a ratio comes to
        break;
    case BudgetUnit::mib:
        fixed_ = mib_budget();
        break;
    }
    if (fixed_ < least) {
        throw_error(ErrorKind::input,
                    "{}: a budget of {} slots leaves no room beside policy.protect (prefix {} + "
                    "recent {}{}); at "
                    "least {}",
                    key, fixed_, config_.protect_prefix, config_.protect_recent,
                    pinned_slots() > 0 ? fmt::format(" + spans {}", pinned_slots()) : "", least);
    }
    if (fixed_ < needs_.least_budget) {
        throw_error(
            ErrorKind::input,
            "{}: policy {} needs a budget of at least {} slots with these parameters, found {}",
            key, config_.policy.name, needs_.least_budget, fixed_);
    }
    if (config_.slack && *config_.slack < 0)
        throw_error(ErrorKind::input, "policy.budget.slack: expected 0 or more, found {}",
                    *config_.slack);
    const int64_t capacity = capacity_slots();
    if (capacity < shape_.max_slots && fixed_ >= capacity) {
        throw_error(ErrorKind::input,
                    "{}: a budget of {} slots does not fit: kv.max_mib = {:.1f} holds {} slots, "
                    "one of which the "
                    "next token needs",
                    key, fixed_, static_cast<double>(shape_.max_bytes) / mib, capacity);
    }
}

void CachePlan::check_positions() {
    if (config_.positions == KvPositions::absolute) return;
    if (config_.rope_frequencies.empty() || 2 * config_.rope_frequencies.size() > shape_.head_dim) {
        throw_error(ErrorKind::internal, "re-rotation with {} RoPE frequencies of heads of {}",
                    config_.rope_frequencies.size(), shape_.head_dim);
    }
}

// Slots per head that stay, so that with what may come on top of them the blocks in use never pass
// the MiB.
int64_t CachePlan::mib_budget() {
    const auto row = static_cast<double>(slot_row_bytes());
    const int64_t block = shape_.block_slots;
    if (ragged_ && keeps_pristine()) {
        throw_error(ErrorKind::input,
                    "policy.budget.mib: {} keys that are rotated again keep copies as long as a "
                    "layer's longest "
                    "head, which a budget in MiB does not bound under allocator {}; use "
                    "policy.budget.tokens, "
                    "policy.positions: absolute, or a kv.key_dtype of f16",
                    keel_dtype_name(shape_.key_dtype), config_.allocator.name);
    }
    // Heads of unequal length each leave a part of a block unused.
    const bool listed = needs_.output == KEEL_OUTPUT_KEEP && needs_.granularity != KEEL_KEEP_TOKEN;
    const bool uneven = uneven_ || listed || needs_.granularity == KEEL_KEEP_HEAD_RAGGED;
    const double least = uneven ? 2 : 1;
    const double blocks = std::floor(std::clamp(config_.budget, 0.0, 1e9) * mib / row);
    if (blocks < least) {
        throw_error(
            ErrorKind::input,
            "policy.budget.mib: {} MiB do not hold {} of {} slots for each head; at least {:.3f}",
            config_.budget, uneven ? "two blocks (heads may differ in length)" : "one block", block,
            least * row / mib);
    }
    mib_slots_ =
        static_cast<int64_t>(std::min((blocks - least + 1) * static_cast<double>(block), 1e9));
    // What comes before the trigger fires, and within a step.
    const bool in_prompt = acts_in_prefill() && config_.at_budget;
    int64_t step = 0;
    if (!prefill_only())
        step =
            in_prompt ? std::clamp<int64_t>(mib_slots_ / 8, 1, step_tokens(executor_, shape_)) : 1;
    const int64_t room = mib_slots_ - step;
    int64_t tokens = room;
    if (!prefill_only() && config_.at_budget) {
        tokens = config_.slack ? room - *config_.slack
                               : room * 8 / 9; // slack is an eighth of what stays
    } else if (!prefill_only() && config_.every_n) {
        tokens = room - *config_.every_n;
    }
    budget_key_ = fmt::format(
        "policy.budget.mib (room for {} slots, of which {} for slack and a step's tokens)",
        mib_slots_, mib_slots_ - tokens);
    return std::max<int64_t>(tokens, 0);
}

BudgetNow CachePlan::budget(int64_t seen, int64_t prefix) const {
    BudgetNow now;
    now.tokens = fixed_;
    if (config_.budget_unit == BudgetUnit::none) now.tokens += prefix - config_.protect_prefix;
    if (config_.budget_unit == BudgetUnit::ratio) {
        now.tokens =
            std::max(std::max<int64_t>(prefix + config_.protect_recent + 1, needs_.least_budget),
                     static_cast<int64_t>(std::floor(config_.budget * static_cast<double>(seen))));
    }
    now.slack = config_.slack.value_or(now.tokens / 8);
    // Slack has to leave room for one token, or the trigger would come too late.
    now.slack = std::max<int64_t>(0, std::min(now.slack, capacity_slots() - now.tokens - 1));
    return now;
}

void CachePlan::check_prefix(int64_t prefix, std::string_view what) const {
    if (keeps_all()) return;
    const int64_t least = prefix + config_.protect_recent + 1;
    const int64_t tokens = budget(0, prefix).tokens;
    if (tokens < least) {
        throw_error(ErrorKind::input,
                    "{}: a budget of {} slots leaves no room beside {} of {} tokens and "
                    "policy.protect.recent = {}; at "
                    "least {}, or set policy.protect.system_prompt to false",
                    budget_key_, tokens, what, prefix, config_.protect_recent, least);
    }
    if (least + 1 > capacity_slots()) {
        throw_error(ErrorKind::input,
                    "model.context: {} of {} tokens fills the {} slots that model.context and "
                    "kv.max_mib leave",
                    what, prefix, capacity_slots());
    }
}

TapForms CachePlan::tap_forms() const {
    TapForms forms;
    forms.queries = gathered_.window > 0;
    forms.unrotated = gathered_.stats.has_value();
    forms.scores = gathered_.running.has_value();
    if (gathered_.running) {
        forms.reduce_queries = gathered_.running->queries;
        forms.reduce_group = gathered_.running->group;
    }
    return forms;
}

void CachePlan::plan_ops() {
    const Tensor cos =
        Tensor::shape(KEEL_DTYPE_F32, {shape_.max_slots, std::max<int64_t>(1, geometry_.rot / 2)});
    keel_rope_tables tables = {KEEL_HEADER(keel_rope_tables)};
    tables.cos = tables.sin = cos.c();
    tables.mode = config_.rope_mode;
    tables.rot = static_cast<uint32_t>(2 * cos.dim(1));
    const uint32_t sides = (gathered_.running ? 1 : 0) + (gathered_.chunks ? 1 : 0);
    if (!keeps_all()) gather_ = KvCache::plan_gather(executor_, shape_, sides);
    keel_policy_needs needs = needs_;
    if (keeps_all()) needs.needs = 0;
    inputs_ = InputOps::plan(executor_, shape_, needs, gathered_, &tables);
}

void CachePlan::plan_rerotation() {
    if (config_.positions == KvPositions::absolute) return;
    const KvTemplate kv(shape_);
    const int64_t slots = shape_.blocks_per_head() * shape_.block_slots;
    const auto half = static_cast<int64_t>(config_.rope_frequencies.size());
    const Tensor cos = Tensor::shape(KEEL_DTYPE_F32, {rerotate_rows, half});
    const Tensor index = Tensor::shape(KEEL_DTYPE_I32, {shape_.kv_heads, slots});
    keel_rope_tables tables = {KEEL_HEADER(keel_rope_tables)};
    tables.cos = tables.sin = cos.c();
    tables.mode = config_.rope_mode;
    tables.rot = static_cast<uint32_t>(2 * half);
    keel_kv_rerotate_args turn = {KEEL_HEADER(keel_kv_rerotate_args)};
    turn.kv = kv.view();
    turn.tables = &tables;
    turn.row = turn.new_positions = index.c();
    turn.end = shape_.max_slots;
    if (!keeps_pristine()) {
        rerotate_ = executor_.plan(KEEL_OP_KV_REROTATE, turn, {.role = Role::kv_rerotation});
    }
    // How long a system prompt is comes to light when a conversation begins.
    const int64_t prefix = keeps_pristine() || config_.protect_system_prompt
                               ? shape_.max_slots
                               : config_.protect_prefix;
    if (prefix == 0) return;
    const Tensor copy = Tensor::shape(KEEL_DTYPE_F32, {shape_.kv_heads, prefix, shape_.head_dim});
    turn.features = KEEL_REROTATE_SOURCE;
    turn.source = copy.c();
    turn.end = prefix;
    const Role rotation = keeps_pristine() ? Role::kv_rerotation : Role::kv_prefix_rerotation;
    restore_ = executor_.plan(KEEL_OP_KV_REROTATE, turn, {.role = rotation});
    keel_keys_args keys = {KEEL_HEADER(keel_keys_args)};
    keys.kv = kv.view();
    keys.out = copy.c();
    keys.end = prefix;
    capture_ = executor_.plan(KEEL_OP_KEY_PROJECT, keys, {.role = Role::kv_key_copy});
    if (!keeps_pristine()) return;
    const Tensor codes = Tensor::shape(shape_.key_dtype, {shape_.kv_heads, slots, shape_.head_dim});
    keel_move_args cast = {KEEL_HEADER(keel_move_args)};
    cast.out = codes.c();
    const Tensor same = Tensor::shape(KEEL_DTYPE_F32, {shape_.kv_heads, slots, shape_.head_dim});
    cast.x = same.c();
    write_pristine_ = executor_.plan(KEEL_OP_CAST, cast, {.role = Role::kv_key_copy});
    const Tensor ids = Tensor::shape(KEEL_DTYPE_I32, {slots}),
                 rows = Tensor::shape(shape_.key_dtype, {slots, shape_.head_dim}),
                 values = Tensor::shape(KEEL_DTYPE_F32, {slots, shape_.head_dim});
    keel_embed_args embed = {KEEL_HEADER(keel_embed_args)};
    embed.ids = ids.c();
    embed.w = rows.c();
    embed.out = values.c();
    embed.scale = 1;
    read_pristine_ = executor_.plan(KEEL_OP_EMBED, embed, {.role = Role::kv_key_restore});
}

std::vector<const PlannedOp *> CachePlan::ops() const {
    std::vector<const PlannedOp *> out = inputs_.list();
    for (const OpHandle *op :
         {&gather_, &capture_, &rerotate_, &restore_, &read_pristine_, &write_pristine_}) {
        if (*op) out.push_back(op->get());
    }
    return out;
}

} // namespace keel
