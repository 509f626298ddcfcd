#include "config/schema.hpp"

namespace keel::pipeline {

void declare_model(Schema &schema) {
    schema.sections.push_back({"model", "The model to run.", "path"});
    schema.keys.add(
        {.path = "model.path",
         .doc = "Hugging Face folder (config.json, safetensors, tokenizer.json) or model file.",
         .example = "../models/tiny",
         .required = true},
        [](auto &c) -> auto & { return c.model.path; });
    schema.keys.add(
        {.path = "model.weights",
         .doc = "Type of the weights in memory. If it differs from the type in the "
                "model's files, Keel converts the weights when it loads them.",
         .example = "q8_0",
         .rule = {.word = "stored"}},
        [](auto &c) -> auto & { return c.model.weights; });
    schema.keys.add(
        {.path = "model.context",
         .doc = "Longest sequence in tokens, prompt included. auto: the length that "
                "the model was trained for, or less if it does not fit in the free "
                "memory.",
         .example = "2048",
         .rule = {.minimum = 1, .maximum = max_tokens, .word = "auto"}},
        [](auto &c) -> auto & { return c.model.context; });
}

} // namespace keel::pipeline
