#pragma once

#include "config/backend_section.hpp"
#include "config/words.hpp"

#include <keel/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::pipeline {

struct PipelineConfig;

enum class SwitchTrigger { tokens, pressure, command };
template <> struct Words<SwitchTrigger> {
    static constexpr Word<SwitchTrigger> all[] = {{SwitchTrigger::tokens, "tokens"},
                                                  {SwitchTrigger::pressure, "pressure"},
                                                  {SwitchTrigger::command, "command"}};
};

// One backend of a hybrid, with the name that the other keys of the hybrid use for it.
struct HybridBackend : BackendSection {
    std::string name;
    SourceLocation name_where;
    // nullopt: the value from the section `kv`
    Setting<std::optional<keel_dtype>> kv_dtype, key_dtype, value_dtype;
    bool operator==(const HybridBackend &other) const {
        return name == other.name && BackendSection::operator==(other) &&
               kv_dtype == other.kv_dtype && key_dtype == other.key_dtype &&
               value_dtype == other.value_dtype;
    }
};

// The layers `first` to `last`, both included, run on one backend.
struct LayerShare {
    int64_t first = 0, last = 0;
    std::string on;
    SourceLocation where, on_where; // places of the range and of the backend's name
    bool operator==(const LayerShare &other) const {
        return first == other.first && last == other.last && on == other.on;
    }
};

struct SwitchSection {
    Setting<std::vector<SwitchTrigger>> on; // the events that cause a switch; empty: no switch
    Setting<std::optional<int64_t>> after_tokens;
    Setting<std::string> to;
    Setting<int64_t> warmup_tokens;
    Setting<std::optional<double>> available_mib; // nullopt means auto

    bool has(SwitchTrigger trigger) const noexcept;
    bool operator==(const SwitchSection &) const = default;
};

// How several backends share the work.
enum class HybridMode {
    none,         // one backend, from the section `backend`
    taking_turns, // keys prefill, decode, switch: one backend runs a whole step
    by_layers,
};

struct HybridSection {
    Setting<std::vector<HybridBackend>> backends; // in the order of the file; names are unique
    // Names of backends. If decode is empty, the first backend runs decode. If prefill is empty,
    // the backend of decode also runs prefill.
    Setting<std::string> prefill, decode;
    SwitchSection switching;
    // The layers of each backend: in ascending order, from layer 0, without a gap. There are at
    // least two backends.
    Setting<std::vector<LayerShare>> layers;

    bool is_given() const { return !backends->empty(); }
    HybridMode mode() const;
    const HybridBackend &backend(std::string_view name) const; // the backend must exist
    bool operator==(const HybridSection &) const = default;
};

// Refuses keys of a hybrid that contradict each other. Refuses a hybrid together with `backend`.
// Throws Error(input) with the place of the key.
void check_hybrid(const PipelineConfig &config);

} // namespace keel::pipeline
