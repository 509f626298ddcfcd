#include "config/schema.hpp"

#include "text/sampler.hpp"

namespace keel::pipeline {
namespace {

Rule within(const SamplingRange &range) { return {.minimum = range.low, .maximum = range.high}; }

void declare_generation(Schema &schema) {
    schema.sections.push_back({"generation", "The prompt, and where the generated text ends."});
    schema.keys.add(
        {.path = "generation.prompt",
         .doc = "Text to continue. The command line's -p replaces it.",
         .example = "Once upon a time"},
        [](auto &c) -> auto & { return c.generation.prompt; });
    schema.keys.add(
        {.path = "generation.pin",
         .doc = "Parts of the prompt whose tokens are never evicted. Each part must "
                "occur exactly once in the prompt.",
         .example = "[\"Once upon a time\"]"},
        [](auto &c) -> auto & { return c.generation.pin; }, std::vector<std::string>{});
    schema.keys.add(
        {.path = "generation.max_tokens",
         .doc = "Most tokens to generate.",
         .example = "256",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.generation.max_tokens; },
        GenerationSection::default_max_tokens);
    schema.keys.add(
        {.path = "generation.stop",
         .doc = "Texts that end the generation. They are not printed.",
         .example = "[\"The end\"]"},
        [](auto &c) -> auto & { return c.generation.stop; }, std::vector<std::string>{});
    schema.keys.add(
        {.path = "generation.lookup",
         .doc = "Most tokens that Keel guesses for a step. A guess is the text that "
                "followed the last three tokens earlier in the text. Texts that quote "
                "their prompt are written faster. The text is the same, except for the "
                "rounding of steps with several tokens. Only under a policy that keeps "
                "all tokens. 0: no guesses.",
         .example = "8",
         .rule = {.minimum = 0, .maximum = GenerationSection::most_lookup}},
        [](auto &c) -> auto & { return c.generation.lookup; }, 0);
}

} // namespace

void declare_sampling(Schema &schema) {
    schema.sections.push_back({"sampling", "How the next token is chosen."});
    schema.keys.add(
        {.path = "sampling.temperature",
         .doc = "The logits are divided by this number. Higher values give more "
                "varied text. 0: always the most likely token.",
         .example = "0",
         .rule = within(sampling_range::temperature)},
        [](auto &c) -> auto & { return c.sampling.temperature; }, 0.8);
    schema.keys.add(
        {.path = "sampling.top_k",
         .doc = "Number of most likely tokens from which the next token is drawn. 0: "
                "all.",
         .example = "0",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.sampling.top_k; }, 40);
    schema.keys.add(
        {.path = "sampling.top_p",
         .doc = "The next token is drawn from the smallest set of most likely tokens "
                "that together have at least this probability. 1: all.",
         .example = "0.9",
         .rule = within(sampling_range::top_p)},
        [](auto &c) -> auto & { return c.sampling.top_p; }, 0.95);
    schema.keys.add(
        {.path = "sampling.min_p",
         .doc = "A token is dropped if its probability is below this share of the "
                "most likely token's probability. 0: none is dropped.",
         .example = "0",
         .rule = within(sampling_range::min_p)},
        [](auto &c) -> auto & { return c.sampling.min_p; }, 0.05);
    schema.keys.add(
        {.path = "sampling.repetition_penalty",
         .doc = "A value above 1 makes tokens that already occur in the text less "
                "likely. 1: off.",
         .example = "1.1",
         .rule = within(sampling_range::repetition_penalty)},
        [](auto &c) -> auto & { return c.sampling.repetition_penalty; }, 1);
    schema.keys.add(
        {.path = "sampling.repetition_window",
         .doc = "Number of latest tokens to which the penalty applies. 0: all.",
         .example = "64",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.sampling.repetition_window; }, 0);
    schema.keys.add(
        {.path = "sampling.seed",
         .doc = "Seed of the random draws. The same seed gives the same text.",
         .example = "1",
         .rule = {.minimum = 0, .maximum = max_seed}},
        [](auto &c) -> auto & { return c.sampling.seed; }, 0);
    declare_generation(schema);
}

} // namespace keel::pipeline
