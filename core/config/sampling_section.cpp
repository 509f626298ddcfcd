#include "config/schema.hpp"

#include "text/sampler.hpp"

namespace keel::pipeline {
namespace {

Rule within(const SamplingRange &range) { return {.minimum = range.low, .maximum = range.high}; }

void declare_generation(Schema &schema) {
    schema.sections.push_back({"generation", "What is written."});
    schema.keys.add(
        {.path = "generation.prompt",
         .doc = "Text to go on from; the command line's -p replaces it.",
         .example = "Once upon a time"},
        [](auto &c) -> auto & { return c.generation.prompt; });
    schema.keys.add(
        {.path = "generation.pin",
         .doc = "Parts of the prompt whose tokens are never evicted; each has to stand "
                "in it exactly once.",
         .example = "[\"Once upon a time\"]"},
        [](auto &c) -> auto & { return c.generation.pin; }, std::vector<std::string>{});
    schema.keys.add(
        {.path = "generation.max_tokens",
         .doc = "Most tokens to write.",
         .example = "256",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.generation.max_tokens; },
        GenerationSection::default_max_tokens);
    schema.keys.add(
        {.path = "generation.stop",
         .doc = "Texts that end the generation; they are not printed.",
         .example = "[\"The end\"]"},
        [](auto &c) -> auto & { return c.generation.stop; }, std::vector<std::string>{});
}

} // namespace

void declare_sampling(Schema &schema) {
    schema.sections.push_back({"sampling", "How the next token is drawn."});
    schema.keys.add(
        {.path = "sampling.temperature",
         .doc = "Divides the logits: higher is more varied; 0 always takes the most "
                "likely token.",
         .example = "0",
         .rule = within(sampling_range::temperature)},
        [](auto &c) -> auto & { return c.sampling.temperature; }, 0.8);
    schema.keys.add(
        {.path = "sampling.top_k",
         .doc = "Draw from this many of the most likely tokens; 0: all.",
         .example = "0",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.sampling.top_k; }, 40);
    schema.keys.add(
        {.path = "sampling.top_p",
         .doc = "Draw from the most likely tokens that together have this probability; "
                "1: all.",
         .example = "0.9",
         .rule = within(sampling_range::top_p)},
        [](auto &c) -> auto & { return c.sampling.top_p; }, 0.95);
    schema.keys.add(
        {.path = "sampling.min_p",
         .doc = "Drop tokens less likely than this share of the likeliest one's "
                "probability; 0: none.",
         .example = "0",
         .rule = within(sampling_range::min_p)},
        [](auto &c) -> auto & { return c.sampling.min_p; }, 0.05);
    schema.keys.add(
        {.path = "sampling.repetition_penalty",
         .doc = "Above 1 makes tokens of the text so far less likely; 1: off.",
         .example = "1.1",
         .rule = within(sampling_range::repetition_penalty)},
        [](auto &c) -> auto & { return c.sampling.repetition_penalty; }, 1);
    schema.keys.add(
        {.path = "sampling.repetition_window",
         .doc = "Latest tokens that the penalty looks at; 0: all.",
         .example = "64",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.sampling.repetition_window; }, 0);
    schema.keys.add(
        {.path = "sampling.seed",
         .doc = "Seed of the draws; the same seed writes the same text.",
         .example = "1",
         .rule = {.minimum = 0, .maximum = max_seed}},
        [](auto &c) -> auto & { return c.sampling.seed; }, 0);
    declare_generation(schema);
}

} // namespace keel::pipeline
