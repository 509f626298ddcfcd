#pragma once

#include "base/error.hpp"
#include "config/schema.hpp"
#include "plugin/places.hpp"

#include <string_view>

namespace keel {

// Returns the places of a section and of its parameters in the config.
inline PluginPlaces places_of(const pipeline::PluginSection &section) {
    PluginPlaces places;
    places.plugin = section.plugin.where;
    for (const pipeline::RawParam &param : section.params)
        places.params.emplace_back(param.key, param.where);
    return places;
}

// Returns the place of a key in the config. Returns `otherwise` if the config does not give the
// key. `key` may have more words after a space; these words are ignored.
const SourceLocation &place_of(const pipeline::PipelineConfig &config, std::string_view key,
                               const SourceLocation &otherwise);

// Runs `action`. If `action` throws, adds the place of the error's key in the config to the error.
// If the config does not give the key, adds `otherwise`.
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
