#include "config/config_places.hpp"

namespace keel {

const SourceLocation &place_of(const pipeline::PipelineConfig &config, std::string_view key,
                               const SourceLocation &otherwise) {
    const auto *declared = pipeline::find_key(key.substr(0, key.find(' ')));
    const SourceLocation *at = declared != nullptr ? declared->where(config) : nullptr;
    return at != nullptr ? *at : otherwise;
}

} // namespace keel
