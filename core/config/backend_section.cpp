#include "config/schema.hpp"

namespace keel::pipeline {

void declare_backend(Schema &schema) {
    schema.sections.push_back({"backend", "The backend that computes the model.", "plugin"});
    schema.keys.add(
        {.path = "backend.plugin",
         .doc = "The backend: a name found on the plugin path, or a path to a "
                "library.",
         .example = "cpu",
         .rule = {.is_plugin = true},
         .default_note = "required, or `hybrid`"},
        [](auto &c) -> auto & { return c.backend.plugin; });
    schema.keys.add(
        {.path = "backend.device",
         .doc = "Device of the backend: auto, its index, part of its name or vendor, or "
                "its type (cpu, gpu, integrated, discrete).",
         .example = "0"},
        [](auto &c) -> auto & { return c.backend.device; }, "auto");
    schema.keys.add_params(
        {.path = "backend.params",
         .doc = "The backend's own parameters; 'keel plugins show NAME' lists them.",
         .example = "{threads: 2}"},
        [](auto &c) -> auto & { return c.backend.params; });
}

void declare_fallback(Schema &schema) {
    schema.keys.add(
        {.path = "strict",
         .doc = "If true, an op that the backend cannot run itself is an error. If "
                "false, the plugin named in 'fallback' runs it.",
         .example = "true"},
        [](auto &c) -> auto & { return c.strict; }, false);
    schema.keys.add(
        {.path = "fallback",
         .doc = "What runs the ops that the backend cannot run: reference (Keel's own "
                "plain code), or another backend.",
         .example = "cpu",
         .rule = {.is_plugin = true}},
        [](auto &c) -> auto & { return c.fallback; }, "reference");
}

} // namespace keel::pipeline
