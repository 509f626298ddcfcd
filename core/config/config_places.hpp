#pragma once

#include "base/error.hpp"
#include "config/schema.hpp"
#include "plugin/places.hpp"

#include <string_view>

namespace keel {

// Where a section and its parameters stand in the config.
inline PluginPlaces places_of(const pipeline::PluginSection &section) {
    PluginPlaces places;
    places.plugin = section.plugin.where;
    for (const pipeline::RawParam &param : section.params)
        places.params.emplace_back(param.key, param.where);
    return places;
}

// Adds the place in the config to an error of the cache, which begins with its key. `otherwise`:
// the place if the key is not in the config. An error of a plugin's call has its place already.
template <typename Action>
auto at_its_line(const pipeline::PipelineConfig &config, const SourceLocation &otherwise,
                 Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        const std::string_view message = e.what();
        if (places_of(config.policy).begin(message) ||
            places_of(config.policy.allocator).begin(message))
            throw;
        const SourceLocation *where = &otherwise;
        size_t longest = 0;
        for (const auto &key : pipeline::schema().keys) {
            const SourceLocation *at = key->where(config);
            if (key->path.size() > longest && message.starts_with(key->path) && at != nullptr) {
                longest = key->path.size();
                where = at;
            }
        }
        throw Error(e.kind(), fmt::format("{}: {}", to_string(*where), message));
    }
}

} // namespace keel
