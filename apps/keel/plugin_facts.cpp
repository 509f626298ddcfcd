#include "plugin_facts.hpp"

#include "base/error.hpp"
#include "plugin/host.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace keel::cli {
namespace {

[[noreturn]] void fail(const PluginLibrary &library, keel_status status, const char *what) {
    const std::optional<HostError> error = HostServices::take_error();
    throw_error(ErrorKind::plugin, "{}: {} failed: {}", library.name(), what,
                error ? error->message : status_text(status));
}

template <size_t n> std::string text_of(const char (&text)[n]) {
    return std::string(text, strnlen(text, n));
}

const char *type_name(keel_device_type type) {
    switch (type) {
    case KEEL_DEVICE_CPU: return "cpu";
    case KEEL_DEVICE_INTEGRATED: return "integrated";
    case KEEL_DEVICE_DISCRETE: return "discrete";
    default: return "other";
    }
}

const char *granularity_name(keel_granularity granularity) {
    switch (granularity) {
    case KEEL_KEEP_TOKEN: return "token: keeps the same tokens in all layers and heads";
    case KEEL_KEEP_LAYER: return "layer: chooses tokens for each layer";
    case KEEL_KEEP_HEAD_EQUAL:
        return "head: chooses tokens for each key/value head, equally many in a layer";
    case KEEL_KEEP_HEAD_RAGGED: return "head: chooses tokens for each key/value head, any number";
    default: return "unknown";
    }
}

constexpr std::pair<uint64_t, const char *> need_names[] = {
    {KEEL_NEED_POSITIONS, "positions"},
    {KEEL_NEED_KEY_NORMS, "key norms"},
    {KEEL_NEED_VALUE_NORMS, "value norms"},
    {KEEL_NEED_WINDOW_SCORES, "attention of the last queries"},
    {KEEL_NEED_RUNNING_SCORES, "attention of all queries"},
    {KEEL_NEED_KEY_SUM, "sum of keys"},
    {KEEL_NEED_KEY_PROJECT, "projected keys"},
    {KEEL_NEED_QUERY_STATS, "query statistics"},
    {KEEL_NEED_REPLAY, "a second pass over the context"},
    {KEEL_NEED_KEYS, "all keys"},
};

constexpr std::pair<uint32_t, const char *> trait_names[] = {
    {KEEL_POLICY_COMPARABLE, "scores of different heads are comparable"},
    {KEEL_POLICY_PREFILL_ONLY, "acts only at the end of the prompt"},
    {KEEL_POLICY_BLOCKWISE, "also acts between the chunks of a prompt"},
    {KEEL_POLICY_BETWEEN_LAYERS, "acts between layers"},
    {KEEL_POLICY_KEEPS_ALL, "evicts nothing: budget and trigger have no effect"},
};

// Asks the policy for its needs with a model of medium size. If the policy returns an error status,
// the host has the text of the error.
keel_status ask_needs(const PluginLibrary &library, const ParamValues &params,
                      keel_policy_needs &needs) {
    const HostServices host;
    const keel_policy &table = library.policy();
    constexpr uint32_t head_dim = 64;
    std::vector<double> frequencies; // RoPE frequencies of a Llama model
    for (uint32_t i = 0; i < head_dim / 2; ++i)
        frequencies.push_back(std::pow(1e4, -2.0 * i / head_dim));
    keel_geometry geometry = {KEEL_HEADER(keel_geometry), 16, 32, 8, head_dim, 8192};
    geometry.rot = head_dim;
    geometry.rope_frequencies = frequencies.data();
    geometry.attention_scale = 0.125F;
    keel_policy_state *state = nullptr;
    HostServices::drop_error();
    const keel_status status =
        table.create(host.table(), &geometry, params.data(), params.size(), 0, &needs, &state);
    if (status == KEEL_OK) table.destroy(state);
    return status;
}

} // namespace

std::vector<DeviceFacts> backend_devices(const PluginLibrary &library) {
    const HostServices host;
    const keel_backend &table = library.backend();
    uint32_t n = 0;
    HostServices::drop_error();
    if (const keel_status status = table.device_count(host.table(), &n); status != KEEL_OK)
        fail(library, status, "counting devices");
    std::vector<DeviceFacts> devices;
    for (uint32_t i = 0; i < std::min<uint32_t>(n, 64); ++i) {
        keel_device_info info = {KEEL_HEADER(keel_device_info)};
        if (const keel_status status = table.device_info(host.table(), i, &info); status != KEEL_OK)
            fail(library, status, "describing a device");
        devices.push_back({text_of(info.name), text_of(info.vendor), text_of(info.driver),
                           type_name(info.type), info.total_bytes});
    }
    return devices;
}

PolicyFacts policy_facts(const PluginLibrary &library) {
    const ParamValues params = library.params().bind({}, {library.name(), 0, 0});
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    const keel_status status = ask_needs(library, params, needs);
    if (status != KEEL_OK) fail(library, status, "asking for the policy's needs");
    PolicyFacts facts;
    facts.granularity = granularity_name(needs.granularity);
    facts.output = needs.output == KEEL_OUTPUT_KEEP ? "lists of the slots to keep" : "scores";
    for (const auto &[bit, name] : need_names) {
        if ((needs.needs & bit) != 0) facts.needs.emplace_back(name);
    }
    for (const auto &[bit, name] : trait_names) {
        if ((needs.flags & bit) != 0) facts.traits.emplace_back(name);
    }
    facts.window = needs.window;
    facts.own_budget = needs.own_budget;
    return facts;
}

bool never_evicts(const PluginLibrary &library, const ParamValues &params) {
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    const bool is_known = ask_needs(library, params, needs) == KEEL_OK;
    HostServices::drop_error();
    return is_known && (needs.flags & KEEL_POLICY_KEEPS_ALL) != 0;
}

} // namespace keel::cli
