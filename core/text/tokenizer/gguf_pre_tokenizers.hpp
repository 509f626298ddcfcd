#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// How a byte-level vocabulary of a GGUF file cuts words; the files only name it
// (tokenizer.ggml.pre).
struct GgufPreTokenizer {
    std::vector<std::string_view>
        patterns;                  // applied one after another, each match a piece of its own
    bool ignore_merges = false;    // a word that is a token becomes that token
    bool compose_for_qwen = false; // NFC before everything, if the architecture is one of Qwen's
    bool add_bos = false;          // where the file does not say
};

// nullopt: the name is not known.
std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name);
// The other direction: the first name for a way to cut, whatever it says of add_bos. composes: with
// NFC before it or without; nothing: either will do. nullopt: there is none.
std::optional<std::string_view>
name_gguf_pre_tokenizer(const std::vector<std::string_view> &patterns, bool ignore_merges,
                        std::optional<bool> composes = {});
// The steps that tokenizer.json writes by name: ByteLevel's own pattern, and Digits with
// individual_digits.
std::string_view byte_level_pattern();
std::string_view single_digit_pattern();
// For messages: "default, gpt-2, llama-bpe, ...".
std::string gguf_pre_tokenizer_names();

} // namespace keel
