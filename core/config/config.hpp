#pragma once

#include "base/location.hpp"
#include "config/yaml_document.hpp"

#include <keel/tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel::pipeline {

// A value and where it was written; an empty place means that it is the schema's default.
template <typename T>
struct Setting {
    T value{};
    SourceLocation where;

    bool is_default() const noexcept { return where.file.empty(); }
    const T &operator*() const noexcept { return value; }
    const T *operator->() const noexcept { return &value; }
    // Two configs are equal if they do the same, wherever it was written.
    bool operator==(const Setting &other) const { return value == other.value; }
};

// A plugin's parameter as written. The plugin's own table says what it may be; that check comes when it is loaded.
struct RawParam {
    std::string key;
    std::string text;               // of a scalar
    std::vector<std::string> items; // of a sequence of scalars
    bool is_null = false;
    bool is_sequence = false;
    bool quoted = false;          // text stood in quotes; says nothing about what it means
    SourceLocation where;         // of the value
    SourceLocation key_where;     // of the key
    std::filesystem::path folder; // of the file it stands in: where a relative path starts

    bool operator==(const RawParam &other) const {
        return key == other.key && text == other.text && items == other.items && is_null == other.is_null &&
               is_sequence == other.is_sequence;
    }
};

enum class PositionMode { absolute, rerotated, automatic };
enum class Trigger { prefill_end, budget, insert, every_n, pressure };
enum class SyncStrategy { automatic, lazy, eager, batched };
enum class StepReplay { automatic, off };
enum class StepAhead { automatic, off };
enum class BudgetKind { none, tokens, ratio, mib };
enum class SwitchTrigger { tokens, pressure, command };

struct PluginSection {
    Setting<std::string> plugin; // a name, or an absolute path (it begins with '/')
    std::vector<RawParam> params;
    bool operator==(const PluginSection &) const = default;
};

struct ModelSection {
    Setting<std::filesystem::path> path; // absolute
    Setting<keel_dtype> weights;         // KEEL_DTYPE_NONE: as stored
    Setting<std::optional<int64_t>> context;
    bool operator==(const ModelSection &) const = default;
};

struct BackendSection : PluginSection {
    Setting<std::string> device; // "auto", an index, part of a name
    bool operator==(const BackendSection &) const = default;
};

struct KvSection {
    Setting<keel_dtype> dtype;
    Setting<std::optional<keel_dtype>> key_dtype, value_dtype;
    Setting<std::optional<double>> max_mib;

    keel_dtype key_type() const { return key_dtype->value_or(*dtype); }
    keel_dtype value_type() const { return value_dtype->value_or(*dtype); }
    std::optional<uint64_t> max_bytes() const; // rounded down
    bool operator==(const KvSection &) const = default;
};

struct BudgetSection {
    Setting<std::optional<int64_t>> tokens; // at most one of the three
    Setting<std::optional<double>> ratio;
    Setting<std::optional<double>> mib;
    Setting<std::optional<int64_t>> slack; // tokens; nullopt: an eighth of the budget

    BudgetKind kind() const noexcept;
    SourceLocation where() const; // of the one that is given
    bool operator==(const BudgetSection &) const = default;
};

// Tokens number `from` to `to` - 1 of a sequence.
struct Span {
    int64_t from = 0, to = 0;
    bool operator==(const Span &) const = default;
};

struct ProtectSection {
    Setting<int64_t> prefix, recent;
    Setting<bool> system_prompt; // of a chat
    Setting<std::vector<Span>> spans;
    bool operator==(const ProtectSection &) const = default;
};

struct PressureSection {
    Setting<std::optional<double>> available_mib, critical_mib; // nullopt: auto
    Setting<std::optional<double>> stalled_percent;             // nullopt: not looked at
    Setting<std::vector<double>> steps;
    Setting<int64_t> cooldown; // tokens

    SourceLocation where() const; // of the first key that is given; empty: none is
    bool operator==(const PressureSection &) const = default;
};

struct TriggerSection {
    Setting<std::vector<Trigger>> on;
    Setting<std::optional<int64_t>> every_n; // given if and only if `on` holds every_n (policy none aside)
    PressureSection pressure;                // no key given unless `on` holds pressure (policy none aside)

    bool has(Trigger trigger) const noexcept;
    bool operator==(const TriggerSection &) const = default;
};

struct PolicySection : PluginSection {
    PluginSection allocator;
    BudgetSection budget;
    ProtectSection protect;
    Setting<PositionMode> positions;
    TriggerSection trigger;
    Setting<std::optional<std::filesystem::path>> log; // absolute
    Setting<bool> log_positions;                       // true only with a log
    Setting<int64_t> seed;
    bool operator==(const PolicySection &) const = default;
};

struct SyncSection {
    static constexpr int64_t default_ops = 50;
    Setting<SyncStrategy> strategy;
    Setting<std::optional<int64_t>> ops; // only with batched
    Setting<StepReplay> replay;
    Setting<StepAhead> ahead;

    int64_t ops_per_submit() const { return ops->value_or(default_ops); }
    bool operator==(const SyncSection &) const = default;
};

struct SamplingSection {
    Setting<double> temperature;
    Setting<int64_t> top_k;
    Setting<double> top_p, min_p, repetition_penalty;
    Setting<int64_t> repetition_window, seed;
    bool operator==(const SamplingSection &) const = default;
};

struct GenerationSection {
    Setting<std::string> prompt;
    Setting<std::vector<std::string>> pin;
    Setting<int64_t> max_tokens;
    Setting<std::vector<std::string>> stop;
    bool operator==(const GenerationSection &) const = default;
};

// One of the backends of a hybrid, under the name that the rest of the section knows it by.
struct HybridBackend : BackendSection {
    std::string name;
    SourceLocation name_where;
    Setting<std::optional<keel_dtype>> kv_dtype, key_dtype, value_dtype; // nullopt: as `kv:` says
    bool operator==(const HybridBackend &other) const {
        return name == other.name && BackendSection::operator==(other) && kv_dtype == other.kv_dtype &&
               key_dtype == other.key_dtype && value_dtype == other.value_dtype;
    }
};

// Layers first to last, both included, on a backend.
struct LayerShare {
    int64_t first = 0, last = 0;
    std::string on;
    SourceLocation where, on_where; // of the range, of the name
    bool operator==(const LayerShare &other) const {
        return first == other.first && last == other.last && on == other.on;
    }
};

struct SwitchSection {
    Setting<std::vector<SwitchTrigger>> on; // empty: never
    Setting<std::optional<int64_t>> after_tokens;
    Setting<std::string> to;
    Setting<int64_t> warmup_tokens;
    Setting<std::optional<double>> available_mib; // nullopt: auto

    bool has(SwitchTrigger trigger) const noexcept;
    bool operator==(const SwitchSection &) const = default;
};

// What several backends share of the work. Exactly one of the modes is in use.
enum class HybridMode {
    none,         // one backend, under `backend:`
    taking_turns, // prefill, decode, switch: one backend runs a step
    by_layers,
};

struct HybridSection {
    Setting<std::vector<HybridBackend>> backends; // in the order of the file; names differ
    Setting<std::string> prefill, decode; // checked; empty: decode is the first backend, prefill is decode's
    SwitchSection switching;
    Setting<std::vector<LayerShare>> layers; // rising, from 0, without a gap; two backends at least

    bool is_given() const { return !backends->empty(); }
    HybridMode mode() const;
    const HybridBackend &backend(std::string_view name) const; // which has to be there
    bool operator==(const HybridSection &) const = default;
};

// A pipeline file, checked against the schema. Whether the named plugins exist and take their params, and whether model,
// backend and policy fit together, is known when they are loaded.
struct PipelineConfig {
    ModelSection model;
    BackendSection backend; // nothing in it where a hybrid is given
    HybridSection hybrid;
    KvSection kv;
    PolicySection policy;
    SyncSection sync;
    Setting<bool> strict;
    Setting<std::string> fallback;
    SamplingSection sampling;
    GenerationSection generation;
    bool operator==(const PipelineConfig &) const = default;
};

// Calls visit(path, member) for each key of the schema, in its order; member is a Setting or a vector<RawParam>.
// The one list that ties the table to the struct.
template <typename Config, typename Visit>
void visit_settings(Config &c, Visit &&visit) {
    visit("model.path", c.model.path);
    visit("model.weights", c.model.weights);
    visit("model.context", c.model.context);
    visit("backend.plugin", c.backend.plugin);
    visit("backend.device", c.backend.device);
    visit("backend.params", c.backend.params);
    visit("kv.dtype", c.kv.dtype);
    visit("kv.key_dtype", c.kv.key_dtype);
    visit("kv.value_dtype", c.kv.value_dtype);
    visit("kv.max_mib", c.kv.max_mib);
    visit("policy.plugin", c.policy.plugin);
    visit("policy.params", c.policy.params);
    visit("policy.allocator.plugin", c.policy.allocator.plugin);
    visit("policy.allocator.params", c.policy.allocator.params);
    visit("policy.budget.tokens", c.policy.budget.tokens);
    visit("policy.budget.ratio", c.policy.budget.ratio);
    visit("policy.budget.mib", c.policy.budget.mib);
    visit("policy.budget.slack", c.policy.budget.slack);
    visit("policy.protect.prefix", c.policy.protect.prefix);
    visit("policy.protect.recent", c.policy.protect.recent);
    visit("policy.protect.system_prompt", c.policy.protect.system_prompt);
    visit("policy.protect.spans", c.policy.protect.spans);
    visit("policy.positions", c.policy.positions);
    visit("policy.trigger.on", c.policy.trigger.on);
    visit("policy.trigger.every_n", c.policy.trigger.every_n);
    visit("policy.trigger.pressure.available_mib", c.policy.trigger.pressure.available_mib);
    visit("policy.trigger.pressure.critical_mib", c.policy.trigger.pressure.critical_mib);
    visit("policy.trigger.pressure.stalled_percent", c.policy.trigger.pressure.stalled_percent);
    visit("policy.trigger.pressure.steps", c.policy.trigger.pressure.steps);
    visit("policy.trigger.pressure.cooldown", c.policy.trigger.pressure.cooldown);
    visit("policy.log", c.policy.log);
    visit("policy.log_positions", c.policy.log_positions);
    visit("policy.seed", c.policy.seed);
    visit("sync.strategy", c.sync.strategy);
    visit("sync.ops", c.sync.ops);
    visit("sync.replay", c.sync.replay);
    visit("sync.ahead", c.sync.ahead);
    visit("strict", c.strict);
    visit("fallback", c.fallback);
    visit("hybrid.backends", c.hybrid.backends);
    visit("hybrid.prefill", c.hybrid.prefill);
    visit("hybrid.decode", c.hybrid.decode);
    visit("hybrid.switch.on", c.hybrid.switching.on);
    visit("hybrid.switch.after_tokens", c.hybrid.switching.after_tokens);
    visit("hybrid.switch.to", c.hybrid.switching.to);
    visit("hybrid.switch.warmup_tokens", c.hybrid.switching.warmup_tokens);
    visit("hybrid.switch.available_mib", c.hybrid.switching.available_mib);
    visit("hybrid.layers", c.hybrid.layers);
    visit("sampling.temperature", c.sampling.temperature);
    visit("sampling.top_k", c.sampling.top_k);
    visit("sampling.top_p", c.sampling.top_p);
    visit("sampling.min_p", c.sampling.min_p);
    visit("sampling.repetition_penalty", c.sampling.repetition_penalty);
    visit("sampling.repetition_window", c.sampling.repetition_window);
    visit("sampling.seed", c.sampling.seed);
    visit("generation.prompt", c.generation.prompt);
    visit("generation.pin", c.generation.pin);
    visit("generation.max_tokens", c.generation.max_tokens);
    visit("generation.stop", c.generation.stop);
}

// Whether budget and trigger make sense together. A policy that keeps all ignores them, and whether it does it says itself: to be asked
// once the policy was loaded and is known to evict. Throws Error(input) with the key's line.
void check_eviction(const PolicySection &policy);

// What the keys of a hybrid ask of each other. Throws Error(input) with the key's line. `sections` has a `backend:` as well.
void check_hybrid(const PipelineConfig &config);

// Checks a tree and makes a config of it. Throws Error(input) "FILE:LINE:COLUMN: expected ..., found ...".
PipelineConfig make_config(const YamlNode &root);

// Reads a pipeline file. `overrides` are the arguments of --set, "policy.budget.tokens=64", later ones win; paths in
// them start from the working directory; `option` is what gave them, for messages. See override.hpp.
PipelineConfig load_config(const std::filesystem::path &path, std::span<const std::string> overrides = {},
                           std::string_view option = "--set");

// The same from memory: `name` is what messages show, relative paths start from `folder`.
PipelineConfig parse_config(std::string_view text, const std::string &name,
                            const std::filesystem::path &folder, std::span<const std::string> overrides = {});

// No file at all: defaults and overrides (model.path and backend.plugin among them).
PipelineConfig config_from_overrides(std::span<const std::string> overrides,
                                     std::string_view option = "--set");

} // namespace keel::pipeline
