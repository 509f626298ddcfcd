#include "config/schema.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "config/hybrid_codec.hpp"

#include <algorithm>

namespace keel::pipeline {
namespace {

constexpr int64_t default_warmup_tokens = 8;

std::vector<std::string> names_of(const HybridSection &hybrid) {
    std::vector<std::string> names;
    for (const HybridBackend &backend : *hybrid.backends) names.push_back(backend.name);
    return names;
}

void check_known(const HybridSection &hybrid, const std::string &name, const SourceLocation &where,
                 std::string_view key) {
    const std::vector<std::string> names = names_of(hybrid);
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    throw_at(where, ErrorKind::input,
             "expected a name of 'hybrid.backends' ({}) for '{}', found '{}'{}",
             fmt::join(names, ", "), key, printable(name, 40), did_you_mean(name, names));
}

// Returns the place of the first of `settings` that the config gives. Empty if the config gives
// none.
SourceLocation first_given(std::initializer_list<const Origin *> settings) {
    for (const Origin *setting : settings) {
        if (!setting->is_default()) return setting->where;
    }
    return {};
}

SourceLocation turns_where(const HybridSection &h) {
    if (!h.switching.on->empty()) return first_given({&h.prefill, &h.decode, &h.switching.on});
    return first_given({&h.prefill, &h.decode, &h.switching.after_tokens, &h.switching.to});
}

// Refuses a key of `switch` if its trigger is absent. Defaults are accepted without the trigger,
// because a resolved pipeline writes them out.
void check_belongs(const SwitchSection &s, bool used, const SourceLocation &where,
                   std::string_view key, std::string_view trigger) {
    if (used) return;
    throw_at(where, ErrorKind::input,
             "expected {0} in 'hybrid.switch.on', because 'hybrid.switch.{1}' is set; found {2}; "
             "add {0} to the list",
             trigger, key, s.on->empty() ? "no list" : "other triggers");
}

void check_switch(const HybridSection &hybrid) {
    const SwitchSection &s = hybrid.switching;
    const bool tokens = s.has(SwitchTrigger::tokens), pressure = s.has(SwitchTrigger::pressure);
    if (s.on->empty() && !s.on.is_default())
        throw_at(s.on.where, ErrorKind::input,
                 "expected at least one trigger in 'hybrid.switch.on', found none");
    if (tokens && !*s.after_tokens) {
        throw_at(s.on.where, ErrorKind::input,
                 "expected the key 'hybrid.switch.after_tokens', because 'hybrid.switch.on' lists "
                 "tokens; found none");
    }
    if (*s.after_tokens) check_belongs(s, tokens, s.after_tokens.where, "after_tokens", "tokens");
    if (!s.to->empty()) {
        check_belongs(s, tokens || pressure, s.to.where, "to", "tokens or pressure");
        check_known(hybrid, *s.to, s.to.where, "hybrid.switch.to");
    } else if (tokens || pressure) {
        throw_at(
            s.on.where, ErrorKind::input,
            "expected the key 'hybrid.switch.to', because 'hybrid.switch.on' lists {}; found none",
            tokens ? "tokens" : "pressure");
    }
    if (*s.available_mib)
        check_belongs(s, pressure, s.available_mib.where, "available_mib", "pressure");
    if (*s.warmup_tokens != default_warmup_tokens)
        check_belongs(s, tokens || s.has(SwitchTrigger::command), s.warmup_tokens.where,
                      "warmup_tokens", "tokens or command");
}

// Refuses settings of a switch that never happens. Defaults are accepted, because a resolved
// pipeline writes them out.
void check_no_switch(const SwitchSection &s, std::string_view why) {
    const auto refuse = [&](const SourceLocation &where, std::string_view key,
                            std::string_view purpose) {
        throw_error(ErrorKind::input, "{}: 'hybrid.switch.{}' sets {}, but {}; remove the key",
                    to_string(where), key, purpose, why);
    };
    if (*s.available_mib)
        refuse(s.available_mib.where, "available_mib",
               "the available memory below which decode switches to another backend");
    if (*s.warmup_tokens != default_warmup_tokens)
        refuse(s.warmup_tokens.where, "warmup_tokens",
               "the number of dummy tokens that a backend runs before decode switches to it");
}

void check_turns(const HybridSection &hybrid) {
    if (!hybrid.decode->empty())
        check_known(hybrid, *hybrid.decode, hybrid.decode.where, "hybrid.decode");
    if (!hybrid.prefill->empty())
        check_known(hybrid, *hybrid.prefill, hybrid.prefill.where, "hybrid.prefill");
    check_switch(hybrid);
    const std::string &decode =
        hybrid.decode->empty() ? hybrid.backends->front().name : *hybrid.decode;
    const std::string &prefill = hybrid.prefill->empty() ? decode : *hybrid.prefill;
    if (*hybrid.switching.to == decode &&
        (prefill == decode || !hybrid.switching.has(SwitchTrigger::pressure))) {
        throw_at(hybrid.switching.to.where, ErrorKind::input,
                 "'hybrid.switch.to': {} already runs decode; name another backend, or remove "
                 "'hybrid.switch'",
                 decode);
    }
    if (prefill == decode && hybrid.switching.on->empty()) {
        throw_at(turns_where(hybrid), ErrorKind::input,
                 "backend {} runs both prefill and decode, and 'hybrid.switch' lists no trigger; "
                 "name another backend for prefill or decode, or set 'hybrid.switch.on'",
                 decode);
    }
}

void check_unused(const HybridSection &hybrid, const std::vector<std::string> &used,
                  std::string_view key) {
    for (const HybridBackend &backend : *hybrid.backends) {
        if (std::find(used.begin(), used.end(), backend.name) != used.end()) continue;
        throw_at(backend.name_where, ErrorKind::input,
                 "backend {} is not used in '{}'; use the backend there, or remove it from "
                 "'hybrid.backends'",
                 backend.name, key);
    }
}

void check_layers(const HybridSection &hybrid) {
    std::vector<std::string> used;
    int64_t next = 0;
    for (const LayerShare &share : *hybrid.layers) {
        check_known(hybrid, share.on, share.on_where, "hybrid.layers");
        used.push_back(share.on);
        if (share.first != next) {
            throw_at(share.where, ErrorKind::input,
                     "expected the range in 'hybrid.layers' to begin at layer {}, found {}-{}; {}",
                     next, share.first, share.last,
                     share.first < next
                         ? "otherwise some layers would be on two backends"
                         : "otherwise the layers before this range would have no backend");
        }
        next = share.last + 1;
    }
    check_unused(hybrid, used, "hybrid.layers");
}

void declare_switch(Schema &schema) {
    schema.sections.push_back(
        {"hybrid.switch", "When decode moves to another backend. The cache moves too."});
    schema.keys.add(
        {.path = "hybrid.switch.on",
         .doc = "When decode moves to another backend. tokens: after a number of "
                "tokens. pressure: when the system runs short of memory. command: at "
                "the command /switch NAME of keel chat.",
         .example = "[tokens, command]"},
        [](auto &c) -> auto & { return c.hybrid.switching.on; });
    schema.keys.add(
        {.path = "hybrid.switch.after_tokens",
         .doc = "Number of tokens that are generated before the switch. Requires "
                "tokens in hybrid.switch.on.",
         .example = "256",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.hybrid.switching.after_tokens; });
    schema.keys.add(
        {.path = "hybrid.switch.to",
         .doc = "Name of the backend to which decode moves for the triggers tokens "
                "and pressure.",
         .example = "gpu"},
        [](auto &c) -> auto & { return c.hybrid.switching.to; });
    schema.keys.add(
        {.path = "hybrid.switch.warmup_tokens",
         .doc = "Number of dummy tokens that the new backend runs right before a "
                "switch, so that its kernels are compiled and its memory is mapped. A "
                "switch for pressure runs none.",
         .example = "0",
         .rule = {.minimum = 0, .maximum = 65536}},
        [](auto &c) -> auto & { return c.hybrid.switching.warmup_tokens; }, default_warmup_tokens);
    schema.keys.add(
        {.path = "hybrid.switch.available_mib",
         .doc = "Decode moves for the trigger pressure if less than this memory is "
                "available, in MiB. auto: a tenth of all memory, at most 256.",
         .example = "512",
         .rule = {.minimum = 0.001, .maximum = max_mib, .word = "auto"}},
        [](auto &c) -> auto & { return c.hybrid.switching.available_mib; });
}

} // namespace

bool SwitchSection::has(SwitchTrigger trigger) const noexcept {
    return std::find(on.value.begin(), on.value.end(), trigger) != on.value.end();
}

HybridMode HybridSection::mode() const {
    if (!is_given()) return HybridMode::none;
    return layers->empty() ? HybridMode::taking_turns : HybridMode::by_layers;
}

const HybridBackend &HybridSection::backend(std::string_view name) const {
    for (const HybridBackend &b : *backends) {
        if (b.name == name) return b;
    }
    throw_error(ErrorKind::internal, "'hybrid.backends' has no backend {}", name);
}

void check_hybrid(const PipelineConfig &config) {
    const HybridSection &h = config.hybrid;
    if (!h.is_given()) {
        const SourceLocation where = first_given(
            {&h.prefill, &h.decode, &h.switching.after_tokens, &h.switching.to, &h.layers});
        if (!where.file.empty() || !h.switching.on->empty()) {
            throw_at(where.file.empty() ? h.switching.on.where : where, ErrorKind::input,
                     "expected the key 'hybrid.backends', because 'hybrid' is set; found none");
        }
        return check_no_switch(h.switching, "there are no 'hybrid.backends' to switch between");
    }
    SourceLocation backend = first_given({&config.backend.plugin, &config.backend.device});
    if (backend.file.empty() && !config.backend.params.empty())
        backend = config.backend.params.front().key_where;
    if (!backend.file.empty()) {
        throw_at(h.backends.where, ErrorKind::input,
                 "expected 'backend' or 'hybrid', found both ('backend' at {}); remove one of them",
                 to_string(backend));
    }
    const SourceLocation turns = turns_where(h);
    if (turns.file.empty() && h.layers->empty()) {
        throw_at(h.backends.where, ErrorKind::input,
                 "expected a key of 'hybrid' that gives work to the backends (prefill, decode, "
                 "switch or layers), found none");
    }
    if (!turns.file.empty() && !h.layers->empty()) {
        throw_at(h.layers.where, ErrorKind::input,
                 "'hybrid' cannot combine prefill, decode and switch with layers in this version; "
                 "keep one of them");
    }
    if (h.layers->empty()) return check_turns(h);
    check_no_switch(h.switching, "'hybrid.layers' fixes the backend of each layer");
    check_layers(h);
}

void declare_hybrid(Schema &schema) {
    schema.sections.push_back(
        {"hybrid", "Several backends in place of 'backend'. Either the backends take "
                   "turns in time (keys prefill, decode and switch), or each backend "
                   "runs some of the layers (key layers). See docs/reference/hybrid.md."});
    schema.keys.add(
        {.path = "hybrid.backends",
         .doc = "The backends, under names of your own: {NAME: {plugin, device, "
                "params, kv}}. plugin, device and params are as in 'backend'. kv is "
                "optional and sets the types of the cache on this backend: {dtype, "
                "key_dtype, value_dtype}.",
         .example = "{gpu: {plugin: my_gpu}, host: {plugin: cpu, params: {threads: 2}}}"},
        [](auto &c) -> auto & { return c.hybrid.backends; });
    schema.keys.add(
        {.path = "hybrid.prefill",
         .doc = "Name of the backend that runs prefill: it reads prompts. If absent, "
                "the backend of decode does this.",
         .example = "gpu"},
        [](auto &c) -> auto & { return c.hybrid.prefill; });
    schema.keys.add(
        {.path = "hybrid.decode",
         .doc = "Name of the backend that runs decode until a switch: it generates "
                "tokens. If absent, the first of backends does this.",
         .example = "host"},
        [](auto &c) -> auto & { return c.hybrid.decode; });
    declare_switch(schema);
    schema.keys.add(
        {.path = "hybrid.layers",
         .doc = "Which backend holds and runs which layers. The ranges begin at layer "
                "0 and leave no gap.",
         .example = "[{range: 0-15, on: gpu}, {range: 16-21, on: host}]"},
        [](auto &c) -> auto & { return c.hybrid.layers; });
}

} // namespace keel::pipeline
