#include "config/schema.hpp"

namespace keel::pipeline {

void declare_backend(Schema &schema) {
    schema.sections.push_back({"backend", "Where it is computed.", "plugin"});
    schema.keys.add(
        {.path = "backend.plugin",
         .doc = "Backend that computes: a name found on the plugin path, or a path to a library.",
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
         .doc = "true: an op that the backend cannot run itself is an error.",
         .example = "true"},
        [](auto &c) -> auto & { return c.strict; }, false);
    schema.keys.add(
        {.path = "fallback",
         .doc = "Who runs an op that the backend cannot: reference is Keel's own plain "
                "code, else another backend.",
         .example = "cpu",
         .rule = {.is_plugin = true}},
        [](auto &c) -> auto & { return c.fallback; }, "reference");
}

} // namespace keel::pipeline
