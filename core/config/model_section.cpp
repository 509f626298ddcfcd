#include "config/schema.hpp"

namespace keel::pipeline {

void declare_model(Schema &schema) {
    schema.sections.push_back({"model", "What to run.", "path"});
    schema.keys.add(
        {.path = "model.path",
         .doc = "Hugging Face folder (config.json, safetensors, tokenizer.json) or model file.",
         .example = "../models/tiny",
         .required = true},
        [](auto &c) -> auto & { return c.model.path; });
    schema.keys.add(
        {.path = "model.weights",
         .doc = "Type that the weights are kept in; quantized at load when it differs "
                "from the stored one.",
         .example = "q8_0",
         .rule = {.word = "stored"}},
        [](auto &c) -> auto & { return c.model.weights; });
    schema.keys.add(
        {.path = "model.context",
         .doc = "Longest sequence in tokens, prompt included; auto: what the model was "
                "trained for, or as much of it as the free memory holds.",
         .example = "2048",
         .rule = {.minimum = 1, .maximum = max_tokens, .word = "auto"}},
        [](auto &c) -> auto & { return c.model.context; });
}

} // namespace keel::pipeline
