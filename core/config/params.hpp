#pragma once

#include "config/config.hpp"
#include "plugin/param_table.hpp"

#include <vector>

namespace keel::pipeline {

// The parameters of a section, in the form that the check against the plugin's table takes:
// ParamTable::bind(given_params(config.policy), ...).
inline std::vector<GivenParam> given_params(const PluginSection &section) {
    std::vector<GivenParam> given;
    for (const RawParam &param : section.params) {
        const auto form = param.is_null       ? GivenParam::Form::null
                          : param.is_sequence ? GivenParam::Form::list
                          : param.quoted      ? GivenParam::Form::quoted
                                              : GivenParam::Form::plain;
        given.push_back({param.key, param.text, form, param.where, param.key_where, param.folder});
    }
    return given;
}

// Makes all parameters of a section that are paths absolute, and returns these parameters. Use it
// for a config that is written to another folder, or whose files are part of a hash. Loads the
// plugin, because the plugin's table says which parameters are paths. The result points into the
// section.
std::vector<RawParam *> path_params(PluginSection &section, keel_plugin_kind kind);

} // namespace keel::pipeline
