#include "run/bind_plugin.hpp"

#include "config/config_places.hpp"
#include "config/params.hpp"
#include "reference/reference.hpp"

namespace keel {

BoundPlugin bind_plugin(const pipeline::PluginSection &section, keel_plugin_kind kind) {
    BoundPlugin bound;
    bound.library = &PluginRegistry::process().get(*section.plugin, kind, section.plugin.where);
    bound.params =
        bound.library->params().bind(pipeline::given_params(section), section.plugin.where);
    bound.places = places_of(section);
    return bound;
}

std::shared_ptr<Device> open_device(const pipeline::BackendSection &section,
                                    const std::shared_ptr<HostServices> &host) {
    if (is_reference(*section.plugin)) {
        if (!section.params.empty()) {
            throw_at(section.params.front().key_where, ErrorKind::input,
                     "the reference backend has no parameters");
        }
        if (*section.device != "auto") {
            throw_at(section.device.where, ErrorKind::input,
                     "expected auto for 'backend.device', found '{}': the reference backend has no "
                     "devices to choose from",
                     *section.device);
        }
        return Device::open_reference(host);
    }
    auto bound = std::make_shared<BoundPlugin>(bind_plugin(section, KEEL_PLUGIN_BACKEND));
    DeviceSpec spec;
    spec.plugin = bound->library->id();
    spec.table = bound->library->backend();
    spec.extension = [library = bound->library](const char *id) { return library->extension(id); };
    spec.selector = *section.device;
    spec.params.assign(bound->params.data(), bound->params.data() + bound->params.size());
    spec.host = host;
    spec.keep_alive = bound;
    spec.places = bound->places;
    spec.selector_at = section.device.where;
    return Device::open(std::move(spec));
}

} // namespace keel
