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

// One of the backends of a hybrid, with the name that the other keys of the hybrid use.
struct HybridBackend : BackendSection {
    std::string name;
    SourceLocation name_where;
    Setting<std::optional<keel_dtype>> kv_dtype, key_dtype, value_dtype; // nullopt: as in `kv`
    bool operator==(const HybridBackend &other) const {
        return name == other.name && BackendSection::operator==(other) &&
               kv_dtype == other.kv_dtype && key_dtype == other.key_dtype &&
               value_dtype == other.value_dtype;
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

// How several backends share the work.
enum class HybridMode {
    none,         // one backend, under `backend:`
    taking_turns, // prefill, decode, switch: one backend runs a step
    by_layers,
};

struct HybridSection {
    Setting<std::vector<HybridBackend>> backends; // in the order of the file; names differ
    // Names of backends. Empty: decode is the first backend, prefill is decode's.
    Setting<std::string> prefill, decode;
    SwitchSection switching;
    // Rising, from 0, without a gap; two backends at least.
    Setting<std::vector<LayerShare>> layers;

    bool is_given() const { return !backends->empty(); }
    HybridMode mode() const;
    const HybridBackend &backend(std::string_view name) const; // which has to be there
    bool operator==(const HybridSection &) const = default;
};

// Refuses keys of a hybrid that contradict each other, and a hybrid together with `backend`.
// Throws Error(input) with the key's place.
void check_hybrid(const PipelineConfig &config);

} // namespace keel::pipeline
