#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// The rule with which a byte-level vocabulary of a GGUF file splits text into words. A GGUF file
// has only the name of the rule (tokenizer.ggml.pre).
struct GgufPreTokenizer {
    std::vector<std::string_view> patterns; // applied one after the other; each match is a piece
    bool ignore_merges = false;             // true: a word that is a token becomes this token
                                            // without merges
    bool compose_for_qwen = false; // applies NFC first if the architecture is one of Qwen's
    bool add_bos = false;          // used if the file does not have the key
};

// Returns the rule with this name, or nullopt if the name is unknown.
std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name);
// Returns the first name whose rule splits with these patterns and with this `ignore_merges`.
// add_bos of the rule does not matter. `composes`: true if the rule must apply NFC first, false if
// it must not, nullopt if both are allowed. Returns nullopt if there is no such name.
std::optional<std::string_view>
name_gguf_pre_tokenizer(const std::vector<std::string_view> &patterns, bool ignore_merges,
                        std::optional<bool> composes = {});
// The patterns of the steps that a tokenizer.json names without a pattern: ByteLevel's own pattern,
// and Digits with individual_digits.
std::string_view byte_level_pattern();
std::string_view single_digit_pattern();
// Returns all names for messages: "default, gpt-2, llama-bpe, ...".
std::string gguf_pre_tokenizer_names();

} // namespace keel
