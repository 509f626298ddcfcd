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

// The place of a key in the config; `otherwise` if the config does not give the key. Words may
// follow the key after a space.
const SourceLocation &place_of(const pipeline::PipelineConfig &config, std::string_view key,
                               const SourceLocation &otherwise);

// Runs `action`. Adds a place in the config to its errors: the place of the error's key;
// `otherwise` if the config does not give the key.
template <typename Action>
auto at_its_line(const pipeline::PipelineConfig &config, const SourceLocation &otherwise,
                 Action &&action) {
    try {
        return action();
    } catch (const PlacedError &) {
        throw;
    } catch (const KeyError &e) {
        throw PlacedError(e.kind(), place_of(config, e.key(), otherwise), e.what());
    } catch (const Error &e) {
        throw PlacedError(e.kind(), otherwise, e.what());
    }
}

} // namespace keel
