#include "kv/evict/policy_setup.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "kv/evict/cache_manager.hpp"
#include "kv/evict/check_policy.hpp"
#include "kv/evict/plugin_state.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

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
        geometry.rope_factor = config.rope_factor;
    }
    geometry.attention_scale = config.attention_scale > 0
                                   ? config.attention_scale
                                   : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    return geometry;
}

void check_repeat_cap(const CacheConfig &config, const KvShape &shape, uint64_t windows) {
    const uint64_t least = windows + shape.bytes_of(1);
    if (windows == 0 || shape.max_bytes >= least) return;
    const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / bytes_per_mib; };
    throw_key_error(ErrorKind::input, "kv.max_mib",
                    "policy {} makes the model repeat the prompt, which needs memory for the "
                    "attention windows ({:.3f} MiB) twice, and for a block for each head in the "
                    "other layers; expected {:.3f} MiB or more, found {:.3f}",
                    config.policy.name, mib(windows), mib(shape.cap_beside + least),
                    mib(shape.cap_beside + shape.max_bytes));
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
    // A temporary state, only for asking the policy about its needs. Each sequence makes its own
    // state.
    const PolicyState probe(config.policy, host.table(), geometry, config.seed, needs);
    if ((needs.needs & KEEL_NEED_KEY_PROJECT) != 0) {
        constexpr uint32_t most_columns = 4096;
        if (needs.projection == nullptr || needs.projection_cols == 0 ||
            needs.projection_cols > most_columns) {
            throw_error(ErrorKind::plugin,
                        "policy {} needs key_project, but sets {} columns{}; expected a matrix "
                        "with 1 to {} columns",
                        config.policy.name, needs.projection_cols,
                        needs.projection == nullptr ? " and no matrix" : "", most_columns);
        }
        if (projection != nullptr)
            projection->assign(needs.projection,
                               needs.projection + size_t{shape.head_dim} * needs.projection_cols);
    }
    needs.projection = nullptr; // the pointer points into the temporary state
    return needs;
}

PolicySetup::PolicySetup(Executor &executor, const KvShape &shape,
                         std::shared_ptr<HostServices> host, CacheConfig config,
                         const Collected &also)
    : executor_(executor), shape_(shape), host_(std::move(host)), config_(std::move(config)) {
    shape_.check();
    geometry_ = geometry_of(shape_, config_);
    needs_ = ask_policy(config_, shape_, *host_, &projection_);
    settle_window();
    const int64_t step = step_tokens(executor_, shape_);
    check_policy_needs(config_.policy.name, needs_, step, shape_.max_slots);
    if (!keeps_all()) check_policy(config_, shape_, needs_);
    collected_ = Collected::of(needs_);
    if (const char *need = collected_.merge(also); need != nullptr) {
        throw_error(ErrorKind::input,
                    "one prefill cannot collect {} in two forms: policy {} and another policy need "
                    "different forms",
                    need, config_.policy.name);
    }
    if (!keeps_all() && config_.allocator.table != nullptr) {
        keel_allocator_needs needs;
        const AllocatorState probe(config_.allocator, host_->table(), geometry_, needs);
        allocator_ = check_allocator(config_, shape_, needs_, needs);
    }
    Budget::State state;
    if (config_.count_policy_state) state = [this](int64_t slots) { return state_bytes(slots); };
    budget_.emplace(config_, needs_, shape_, allocator_, step, state);
    if (state) check_state(config_, shape_, *budget_, state);
    if (!keeps_all()) check_budget(config_, shape_, needs_, allocator_, *budget_);
    if (may_move_keys()) {
        check_rotation();
        rerotation_ = RerotationOps::plan(executor_, shape_, config_, keeps_pristine());
    }
    plan_ops();
    open_log();
}

// This function is for a model in which all layers have an attention window. If the policy keeps
// all slots, the cache holds only the tokens of the window. If the policy evicts, the cache holds
// all tokens, and the policy decides about all of them.
void PolicySetup::settle_window() {
    layout_.max_tokens = config_.evicts ? KvShape::most_slots : shape_.max_slots;
    if (!keeps_all() || config_.keeps_for_forks) shape_.window = 0;
    if (shape_.window > 0)
        shape_.max_slots = std::min<int64_t>(layout_.max_tokens, config_.windowed.slots);
    // To repeat the context, the layers with a window need a copy of their cache. So room for this
    // copy is reserved.
    if (needs(KEEL_NEED_REPLAY) && shape_.max_bytes > 0) {
        const uint64_t copy = config_.windowed.shape.bytes_of(config_.windowed.shape.max_slots);
        check_repeat_cap(config_, shape_, copy);
        shape_.cap_beside += copy;
        shape_.max_bytes -= copy;
    }
    layout_.shape = shape_;
    layout_.windowed = config_.windowed;
}

uint64_t PolicySetup::state_bytes(int64_t slots) const {
    return CacheManager::policy_bytes(*this, slots, slots);
}

void PolicySetup::check_rotation() const {
    const size_t pairs = config_.rope_frequencies.size();
    if (pairs == 0 || 2 * pairs > shape_.head_dim) {
        throw_error(ErrorKind::internal,
                    "found {} RoPE frequencies; expected 1 to half of the head size, which is {}",
                    pairs, shape_.head_dim);
    }
}

void PolicySetup::open_log() {
    log_ = config_.shared_log;
    if (log_ || config_.log.empty()) return;
    EvictionSource source = {config_.policy.name};
    if (!keeps_all() && config_.allocator.table != nullptr) {
        source.allocator = config_.allocator.name;
        source.allocator_params = params_json(config_.allocator.params, config_.allocator.n_params);
    }
    if (config_.windowed_layers < config_.all_layers) {
        source.windowed_layers = config_.windowed_layers;
        source.all_layers = config_.all_layers;
        source.window = config_.model_window;
    }
    log_ = std::make_shared<EvictionLog>(config_.log, std::move(source));
}

TapForms PolicySetup::tap_forms() const {
    TapForms forms;
    forms.queries = ring_use() != RingUse::none;
    forms.unrotated = collected_.stats.has_value();
    forms.scores = collected_.running.has_value();
    if (collected_.running) {
        forms.reduce_queries = collected_.running->queries;
        forms.reduce_group = collected_.running->group;
    }
    return forms;
}

RingUse PolicySetup::ring_use() const {
    if (collected_.window == 0) return RingUse::none;
    // A fork can have another policy, which can evict at any time.
    if (keeps_all() || collected_.window > Collected::of(needs_).window) return RingUse::always;
    if (prefill_only()) return RingUse::none;
    if (config_.at_insert) return acts_in_prefill() ? RingUse::always : RingUse::after_prompt;
    const bool in_decode = config_.at_budget || config_.every_n;
    return in_decode && needs_.window > 1 ? RingUse::after_prompt : RingUse::none;
}

bool PolicySetup::may_use_key_rule() const {
    return config_.pressure && !keeps_all() &&
           (needs(KEEL_NEED_WINDOW_SCORES) || needs(KEEL_NEED_CHUNK_SCORES) ||
            needs(KEEL_NEED_REPLAY));
}

void PolicySetup::plan_ops() {
    const Tensor cos =
        Tensor::shape(KEEL_DTYPE_F32, {shape_.max_slots,
                                       std::max<int64_t>(1, std::ssize(config_.rope_frequencies))});
    keel_rope_tables tables = {KEEL_HEADER(keel_rope_tables)};
    tables.cos = tables.sin = cos.c();
    tables.mode = config_.rope_mode;
    tables.rot = static_cast<uint32_t>(2 * cos.dim(1));
    const uint32_t sides = (collected_.running ? 1 : 0) + (collected_.chunks ? 1 : 0);
    if (!keeps_all()) gather_ = KvCache::plan_gather(executor_, shape_, sides);
    keel_policy_needs needs = needs_;
    if (keeps_all()) needs.needs = 0;
    if (may_use_key_rule()) needs.needs |= key_rule_needs;
    inputs_ = InputOps::plan(executor_, shape_, needs, collected_, logit_rules(),
                             ring_use() != RingUse::none, &tables);
}

std::vector<const PlannedOp *> PolicySetup::ops() const {
    std::vector<const PlannedOp *> out = inputs_.list();
    if (gather_) out.push_back(gather_.get());
    const std::vector<const PlannedOp *> rotating = rerotation_.list();
    out.insert(out.end(), rotating.begin(), rotating.end());
    return out;
}

} // namespace keel
