#include "config/schema.hpp"

#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

namespace keel::pipeline {
namespace {

using Words = std::string_view;
constexpr double max_tokens = 16777216;       // 2^24: far above any context, and exact in a float
constexpr double max_mib = 16777216;          // 16 TiB
constexpr double max_seed = 9007199254740992; // 2^53, so that other tools can read it from JSON

constexpr std::array<Words, 6> weight_words = {"stored", "f32", "f16", "bf16", "q8_0", "q4_0"};
constexpr std::array<Words, 5> dtype_words = {"f32", "f16", "bf16", "q8_0", "q4_0"};
constexpr std::array<Words, 3> position_words = {"absolute", "rerotated", "auto"};
constexpr std::array<Words, 5> trigger_words = {"prefill_end", "budget", "insert", "every_n", "pressure"};
constexpr std::array<Words, 3> switch_words = {"tokens", "pressure", "command"};
constexpr std::array<Words, 4> sync_words = {"auto", "lazy", "eager", "batched"};
constexpr std::array<Words, 2> replay_words = {"auto", "off"};
constexpr std::array<Words, 2> ahead_words = {"auto", "off"};

constexpr KeySpec keys[] = {
    {.path = "model.path",
     .type = KeyType::path,
     .doc = "Hugging Face folder (config.json, safetensors, tokenizer.json) or model file.",
     .example = "../models/tiny",
     .required = true},
    {.path = "model.weights",
     .type = KeyType::choice,
     .default_text = "stored",
     .doc = "Type that the weights are kept in; quantized at load when it differs from the stored one.",
     .example = "q8_0",
     .choices = weight_words},
    {.path = "model.context",
     .type = KeyType::integer,
     .default_text = "auto",
     .doc = "Longest sequence in tokens, prompt included; auto: what the model was trained for, or as much "
            "of it as the free memory holds.",
     .example = "2048",
     .minimum = 1,
     .maximum = max_tokens,
     .word = "auto"},

    {.path = "backend.plugin",
     .type = KeyType::plugin,
     .doc = "Backend that computes: a name found on the plugin path, or a path to a library.",
     .example = "cpu"},
    {.path = "backend.device",
     .type = KeyType::text,
     .default_text = "auto",
     .doc = "Device of the backend: auto, its index, part of its name or vendor, or its type (cpu, gpu, "
            "integrated, discrete).",
     .example = "0"},
    {.path = "backend.params",
     .type = KeyType::params,
     .doc = "The backend's own parameters; 'keel plugins show NAME' lists them.",
     .example = "{threads: 2}"},

    {.path = "kv.dtype",
     .type = KeyType::choice,
     .default_text = "f16",
     .doc = "Type of the cached keys and values.",
     .example = "q8_0",
     .choices = dtype_words},
    {.path = "kv.key_dtype",
     .type = KeyType::choice,
     .doc = "Type of the keys alone; kv.dtype when absent.",
     .example = "q8_0",
     .choices = dtype_words},
    {.path = "kv.value_dtype",
     .type = KeyType::choice,
     .doc = "Type of the values alone; kv.dtype when absent.",
     .example = "q4_0",
     .choices = dtype_words},
    {.path = "kv.max_mib",
     .type = KeyType::number,
     .default_text = "none",
     .doc = "Hard cap of the cache in MiB, never passed; none: the context's size is the only bound.",
     .example = "256",
     .minimum = 0.001,
     .maximum = max_mib,
     .word = "none"},

    {.path = "policy.plugin",
     .type = KeyType::plugin,
     .default_text = "none",
     .doc = "Eviction policy: a name found on the plugin path, or a path to a library; none evicts nothing "
            "and ignores budget and trigger.",
     .example = "sliding_window"},
    {.path = "policy.params",
     .type = KeyType::params,
     .doc = "The policy's own parameters; 'keel plugins show NAME' lists them.",
     .example = "{window: 256}"},
    {.path = "policy.allocator.plugin",
     .type = KeyType::plugin,
     .default_text = "uniform",
     .doc =
         "Allocator that shares the budget out to layers and heads; loaded only under a policy that evicts.",
     .example = "pyramid"},
    {.path = "policy.allocator.params",
     .type = KeyType::params,
     .doc = "The allocator's own parameters.",
     .example = "{alpha: 0.2}"},
    {.path = "policy.budget.tokens",
     .type = KeyType::integer,
     .doc = "Cached tokens per head, on average over the heads, that an eviction leaves.",
     .example = "512",
     .minimum = 1,
     .maximum = max_tokens},
    {.path = "policy.budget.ratio",
     .type = KeyType::number,
     .doc = "The same as a share of the tokens seen when the trigger fires.",
     .example = "0.25",
     .minimum = 0.001,
     .maximum = 1},
    {.path = "policy.budget.mib",
     .type = KeyType::number,
     .doc = "MiB that the cache holds, all layers together; slack and a step's tokens included.",
     .example = "32",
     .minimum = 0.001,
     .maximum = max_mib},
    {.path = "policy.budget.slack",
     .type = KeyType::integer,
     .default_text = "auto",
     .doc =
         "Tokens above the budget that may gather before the next eviction; auto: an eighth of the budget.",
     .example = "64",
     .minimum = 0,
     .maximum = max_tokens,
     .word = "auto"},
    {.path = "policy.protect.prefix",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "First tokens that are never evicted (attention sinks).",
     .example = "4",
     .minimum = 0,
     .maximum = max_tokens},
    {.path = "policy.protect.recent",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "Latest tokens that are never evicted.",
     .example = "32",
     .minimum = 0,
     .maximum = max_tokens},
    {.path = "policy.protect.system_prompt",
     .type = KeyType::boolean,
     .default_text = "true",
     .doc = "Never evict the system prompt of a chat (keel chat); it then counts as protected, like prefix.",
     .example = "false"},
    {.path = "policy.protect.spans",
     .type = KeyType::spans,
     .default_text = "[]",
     .doc = "Further tokens that are never evicted: [from, to] are tokens number from to to - 1 since the "
            "start, "
            "the first is 0.",
     .example = "[[16, 48], [200, 210]]",
     .minimum = 0,
     .maximum = max_tokens},
    {.path = "policy.positions",
     .type = KeyType::choice,
     .default_text = "absolute",
     .doc =
         "Rotation of keys after an eviction: absolute keeps the one they were written with, rerotated "
         "closes the gaps, auto is absolute until the oldest key would lie further back than the model was "
         "trained for and closes the gaps from then on.",
     .example = "rerotated",
     .choices = position_words},
    {.path = "policy.trigger.on",
     .type = KeyType::choice_list,
     .default_text = "[prefill_end, budget]",
     .doc = "When the policy is asked: at the end of the prompt, when budget and slack are full, before "
            "tokens that "
            "would not fit, every n tokens, when the system runs short of memory.",
     .example = "[budget, every_n]",
     .choices = trigger_words},
    {.path = "policy.trigger.every_n",
     .type = KeyType::integer,
     .doc = "Tokens from one eviction to the next; belongs to every_n in trigger.on.",
     .example = "64",
     .minimum = 1,
     .maximum = max_tokens},
    {.path = "policy.trigger.pressure.available_mib",
     .type = KeyType::number,
     .default_text = "auto",
     .doc =
         "MiB of available memory (of the system, or what the control groups' limits leave) below which the "
         "cache gives some back; auto: a tenth of all, at most 256.",
     .example = "512",
     .minimum = 0.001,
     .maximum = max_mib,
     .word = "auto"},
    {.path = "policy.trigger.pressure.critical_mib",
     .type = KeyType::number,
     .default_text = "auto",
     .doc = "MiB of available memory below which the last step is taken at once; auto: a quarter of "
            "available_mib.",
     .example = "64",
     .minimum = 0.001,
     .maximum = max_mib,
     .word = "auto"},
    {.path = "policy.trigger.pressure.stalled_percent",
     .type = KeyType::number,
     .default_text = "20",
     .doc = "Share of the last 10 s, in percent, in which tasks waited for memory (PSI, some avg10 of the "
            "control "
            "group, else of the system), from which on memory counts as short too; none: not looked at.",
     .example = "none",
     .minimum = 0.1,
     .maximum = 100,
     .word = "none"},
    {.path = "policy.trigger.pressure.steps",
     .type = KeyType::falling,
     .default_text = "[0.75, 0.5, 0.25]",
     .doc = "Shares of the budget that the cache goes down to, one after the other while memory stays short; "
            "back "
            "up again once there is half as much more than available_mib.",
     .example = "[0.5, 0.25]",
     .minimum = 0.01,
     .maximum = 0.99},
    {.path = "policy.trigger.pressure.cooldown",
     .type = KeyType::integer,
     .default_text = "16",
     .doc = "Tokens from one such step to the next, so that the first can take effect.",
     .example = "64",
     .minimum = 1,
     .maximum = max_tokens},
    {.path = "policy.log",
     .type = KeyType::path,
     .doc = "File that gets one JSON line per eviction; emptied when a run begins. No bench writes it.",
     .example = "evictions.jsonl"},
    {.path = "policy.log_positions",
     .type = KeyType::boolean,
     .default_text = "false",
     .doc = "Write into the log which tokens each head kept; 'keel eval log' draws them.",
     .example = "true"},
    {.path = "policy.seed",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "Seed of policies that draw at random.",
     .example = "7",
     .minimum = 0,
     .maximum = max_seed},

    {.path = "sync.strategy",
     .type = KeyType::choice,
     .default_text = "auto",
     .doc = "When work is submitted and waited for: auto is the backend's own choice, lazy at natural ends, "
            "eager after every op, batched every sync.ops ops.",
     .example = "lazy",
     .choices = sync_words},
    {.path = "sync.ops",
     .type = KeyType::integer,
     .doc = "Ops per submission; belongs to the strategy batched, where 50 is the default.",
     .example = "25",
     .minimum = 1,
     .maximum = 1000000},
    {.path = "sync.replay",
     .type = KeyType::choice,
     .default_text = "auto",
     .doc =
         "Decode steps are recorded once and submitted again where the backend can (keel.replay/1) and the "
         "strategy does not cut them; off queues each op of each step anew.",
     .example = "off",
     .choices = replay_words},
    {.path = "sync.ahead",
     .type = KeyType::choice,
     .default_text = "auto",
     .doc = "Greedy text on a device that runs beside the host (keel.read_later/1): the next decode step is "
            "queued before its token is read, where the policy decides nothing in between; off waits for "
            "each token first.",
     .example = "off",
     .choices = ahead_words},

    {.path = "strict",
     .type = KeyType::boolean,
     .default_text = "false",
     .doc = "true: an op that the backend cannot run itself is an error.",
     .example = "true"},
    {.path = "fallback",
     .type = KeyType::plugin,
     .default_text = "reference",
     .doc =
         "Who runs an op that the backend cannot: reference is Keel's own plain code, else another backend.",
     .example = "cpu"},
    {.path = "hybrid.backends",
     .type = KeyType::backends,
     .doc = "Backends under names of your own: {NAME: {plugin, device, params, kv}}, plugin, device and "
            "params as "
            "in 'backend', kv (optional) the cache's type there: {dtype, key_dtype, value_dtype}.",
     .example = "{gpu: {plugin: my_gpu}, host: {plugin: cpu, params: {threads: 2}}}"},
    {.path = "hybrid.prefill",
     .type = KeyType::text,
     .doc = "Name of the backend that reads prompts; where decode runs when absent.",
     .example = "gpu"},
    {.path = "hybrid.decode",
     .type = KeyType::text,
     .doc = "Name of the backend that writes, to begin with; the first of backends when absent.",
     .example = "host"},
    {.path = "hybrid.switch.on",
     .type = KeyType::choice_list,
     .doc = "When decode goes on on another backend: after a number of tokens, when the system runs short of "
            "memory, at the command /switch NAME of keel chat.",
     .example = "[tokens, command]",
     .choices = switch_words},
    {.path = "hybrid.switch.after_tokens",
     .type = KeyType::integer,
     .doc = "Tokens that are written before the switch; belongs to tokens in switch.on.",
     .example = "256",
     .minimum = 1,
     .maximum = max_tokens},
    {.path = "hybrid.switch.to",
     .type = KeyType::text,
     .doc = "Name of the backend that tokens and pressure switch to.",
     .example = "gpu"},
    {.path = "hybrid.switch.warmup_tokens",
     .type = KeyType::integer,
     .default_text = "8",
     .doc = "Dummy tokens that the new backend runs right before a switch, so that its kernels are compiled "
            "and its memory is mapped; not under pressure.",
     .example = "0",
     .minimum = 0,
     .maximum = 65536},
    {.path = "hybrid.switch.available_mib",
     .type = KeyType::number,
     .default_text = "auto",
     .doc = "MiB of available memory below which pressure switches; auto: a tenth of all, at most 256.",
     .example = "512",
     .minimum = 0.001,
     .maximum = max_mib,
     .word = "auto"},
    {.path = "hybrid.layers",
     .type = KeyType::layer_map,
     .doc = "Which backend holds and runs which layers, from 0 on and without a gap.",
     .example = "[{range: 0-15, on: gpu}, {range: 16-21, on: host}]"},

    {.path = "sampling.temperature",
     .type = KeyType::number,
     .default_text = "0.8",
     .doc = "Divides the logits: higher is more varied; 0 always takes the most likely token.",
     .example = "0",
     .minimum = 0,
     .maximum = 100},
    {.path = "sampling.top_k",
     .type = KeyType::integer,
     .default_text = "40",
     .doc = "Draw from this many of the most likely tokens; 0: all.",
     .example = "0",
     .minimum = 0,
     .maximum = max_tokens},
    {.path = "sampling.top_p",
     .type = KeyType::number,
     .default_text = "0.95",
     .doc = "Draw from the most likely tokens that together have this probability; 1: all.",
     .example = "0.9",
     .minimum = 0.000001,
     .maximum = 1},
    {.path = "sampling.min_p",
     .type = KeyType::number,
     .default_text = "0.05",
     .doc = "Drop tokens less likely than this share of the likeliest one's probability; 0: none.",
     .example = "0",
     .minimum = 0,
     .maximum = 1},
    {.path = "sampling.repetition_penalty",
     .type = KeyType::number,
     .default_text = "1",
     .doc = "Above 1 makes tokens of the text so far less likely; 1: off.",
     .example = "1.1",
     .minimum = 0.01,
     .maximum = 100},
    {.path = "sampling.repetition_window",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "Latest tokens that the penalty looks at; 0: all.",
     .example = "64",
     .minimum = 0,
     .maximum = max_tokens},
    {.path = "sampling.seed",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "Seed of the draws; the same seed writes the same text.",
     .example = "1",
     .minimum = 0,
     .maximum = max_seed},

    {.path = "generation.prompt",
     .type = KeyType::text,
     .doc = "Text to go on from; the command line's -p replaces it.",
     .example = "Once upon a time"},
    {.path = "generation.pin",
     .type = KeyType::text_list,
     .default_text = "[]",
     .doc = "Parts of the prompt whose tokens are never evicted; each has to stand in it exactly once.",
     .example = "[\"Once upon a time\"]"},
    {.path = "generation.max_tokens",
     .type = KeyType::integer,
     .default_text = "128",
     .doc = "Most tokens to write.",
     .example = "256",
     .minimum = 1,
     .maximum = max_tokens},
    {.path = "generation.stop",
     .type = KeyType::text_list,
     .default_text = "[]",
     .doc = "Texts that end the generation; they are not printed.",
     .example = "[\"The end\"]"},
};

constexpr SectionSpec sections[] = {
    {"", "A pipeline: everything that a run depends on."},
    {"model", "What to run.", "path"},
    {"backend", "Where it is computed.", "plugin"},
    {"kv", "The cache of keys and values.", "dtype"},
    {"policy", "What the cache forgets, and when.", "plugin"},
    {"policy.allocator", "How the budget is shared out to layers and heads.", "plugin"},
    {"policy.budget", "What an eviction leaves: one of tokens, ratio, mib."},
    {"policy.protect", "Tokens that stay whatever the policy says."},
    {"policy.trigger", "When the policy is asked.", "on"},
    {"policy.trigger.pressure",
     "When memory is short, and what the cache then gives back; belongs to pressure in trigger.on."},
    {"sync", "How often host and device wait for each other; results are the same.", "strategy"},
    {"hybrid",
     "Several backends in place of 'backend': one reads and another writes (prefill, decode, switch), or "
     "they hold different layers (layers); see docs/hybrid.md."},
    {"hybrid.switch", "When decode goes on elsewhere, its cache with it."},
    {"sampling", "How the next token is drawn."},
    {"generation", "What is written."},
};

constexpr std::array<Words, 1> drop_params = {"params"};
constexpr std::array<Words, 2> drop_not_tokens = {"ratio", "mib"};
constexpr std::array<Words, 2> drop_not_ratio = {"tokens", "mib"};
constexpr std::array<Words, 2> drop_not_mib = {"tokens", "ratio"};
constexpr std::array<Words, 2> drop_apart = {"key_dtype", "value_dtype"};
constexpr std::array<Words, 1> drop_ops = {"ops"};
constexpr std::array<Words, 1> drop_every_n = {"every_n"};
constexpr std::array<Words, 1> drop_pressure = {"pressure"};

using When = OverrideRule::When;
constexpr OverrideRule rules[] = {
    {"backend", "plugin", When::changed, drop_params},
    {"policy", "plugin", When::changed, drop_params},
    {"policy.allocator", "plugin", When::changed, drop_params},
    {"policy.budget", "tokens", When::always, drop_not_tokens},
    {"policy.budget", "ratio", When::always, drop_not_ratio},
    {"policy.budget", "mib", When::always, drop_not_mib},
    {"kv", "dtype", When::always, drop_apart},
    {"sync", "strategy", When::lacks, drop_ops, "batched"},
    {"policy.trigger", "on", When::lacks, drop_every_n, "every_n"},
    {"policy.trigger", "on", When::lacks, drop_pressure, "pressure"},
};

std::string number_text(double value) {
    return value == static_cast<double>(static_cast<int64_t>(value))
               ? fmt::format("{}", static_cast<int64_t>(value))
               : fmt::format("{}", value);
}

std::string choice_text(const KeySpec &key) {
    std::string text;
    for (const std::string_view choice : key.choices)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", choice);
    return text;
}

} // namespace

std::span<const KeySpec> schema_keys() {
    return keys;
}
std::span<const SectionSpec> schema_sections() {
    return sections;
}
std::span<const OverrideRule> override_rules() {
    return rules;
}

const KeySpec *find_key(std::string_view path) {
    const auto *found =
        std::find_if(std::begin(keys), std::end(keys), [&](const KeySpec &k) { return k.path == path; });
    return found == std::end(keys) ? nullptr : found;
}

const SectionSpec *find_section(std::string_view path) {
    const auto *found = std::find_if(std::begin(sections), std::end(sections),
                                     [&](const SectionSpec &s) { return s.path == path; });
    return found == std::end(sections) ? nullptr : found;
}

std::string_view parent_path(std::string_view path) {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view last_part(std::string_view path) {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string join_path(std::string_view section, std::string_view key) {
    return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

std::string expectation(const KeySpec &key) {
    const std::string range = fmt::format("from {} to {}{}{}", number_text(key.minimum),
                                          number_text(key.maximum), key.word.empty() ? "" : " or ", key.word);
    switch (key.type) {
    case KeyType::text:
        return "a text";
    case KeyType::path:
        return "a path";
    case KeyType::plugin:
        return "a plugin's name (a-z, 0-9, _) or a path to a library";
    case KeyType::integer:
        return "an integer " + range;
    case KeyType::number:
        return "a number " + range;
    case KeyType::boolean:
        return "true or false";
    case KeyType::choice:
        return "one of " + choice_text(key);
    case KeyType::choice_list:
        return "a list of " + choice_text(key);
    case KeyType::text_list:
        return "a list of texts";
    case KeyType::falling:
        return fmt::format("a list of falling numbers from {} to {}", number_text(key.minimum),
                           number_text(key.maximum));
    case KeyType::spans:
        return fmt::format("a list of pairs [from, to] of integers from {} to {}, from below to",
                           number_text(key.minimum), number_text(key.maximum));
    case KeyType::params:
        return "a map of parameters";
    case KeyType::backends:
        return "a map of two backends or more, {NAME: {plugin: X}, NAME: {plugin: Y}}";
    case KeyType::layer_map:
        return "a list of {range: FIRST-LAST, on: NAME}";
    }
    return "nothing";
}

std::string key_suggestion(std::string_view section, std::string_view unknown) {
    std::vector<std::string> known;
    const auto add = [&](std::string_view path) {
        if (!path.empty() && parent_path(path) == section) known.emplace_back(last_part(path));
    };
    for (const SectionSpec &s : sections)
        add(s.path);
    for (const KeySpec &k : keys)
        add(k.path);
    std::string near = did_you_mean(unknown, known);
    if (!near.empty()) return near;
    for (const KeySpec &k : keys) {
        if (last_part(k.path) == unknown) return fmt::format("; did you mean '{}'?", k.path);
    }
    return fmt::format("; known keys: {}", fmt::join(known, ", "));
}

} // namespace keel::pipeline
