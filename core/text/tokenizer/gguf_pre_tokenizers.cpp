// The patterns for the names in tokenizer.ggml.pre. They come from the models' own tokenizer.json
// files.
#include "text/tokenizer/gguf_pre_tokenizers.hpp"

namespace keel {

namespace {

constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view digit = R"(\p{N})";
constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Named {
    std::string_view name;
    GgufPreTokenizer what;
};

const std::vector<Named> &table() {
    static const std::vector<Named> all{
        // for files that are older than these names, and for files whose writer did not know the
        // right name
        {"default", {{R"([\p{P}\$\+<=>\^~\|]+)", gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
        {"gpt-2", {{gpt2}}},
        {"mpt", {{gpt2}}},
        {"llama-bpe", {{llama3}, true, false, true}},
        {"llama3", {{llama3}, true, false, true}},
        {"llama-v3", {{llama3}, true, false, true}},
        {"falcon3", {{llama3}, true, false, true}},
        {"smaug-bpe", {{llama3}}},
        {"qwen2", {{qwen2}, false, true}},
        {"deepseek-r1-qwen", {{qwen2}}},
        {"megrez", {{qwen2}}},
        {"smollm", {{digit, gpt2}}},
        {"starcoder", {{digit, gpt2}}},
        {"refact", {{digit, gpt2}}},
        {"command-r", {{digit, gpt2}}},
        {"tekken", {{tekken}, true}},
    };
    return all;
}

} // namespace

std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name) {
    for (const Named &entry : table())
        if (entry.name == name) return entry.what;
    return std::nullopt;
}

std::optional<std::string_view>
name_gguf_pre_tokenizer(const std::vector<std::string_view> &patterns, bool ignore_merges,
                        std::optional<bool> composes) {
    for (const Named &entry : table()) {
        const GgufPreTokenizer &what = entry.what;
        if (what.patterns == patterns && what.ignore_merges == ignore_merges &&
            what.compose_for_qwen == composes.value_or(what.compose_for_qwen))
            return entry.name;
    }
    return std::nullopt;
}

std::string_view byte_level_pattern() { return gpt2; }

std::string_view single_digit_pattern() { return digit; }

std::string gguf_pre_tokenizer_names() {
    std::string names;
    for (const Named &entry : table()) {
        if (!names.empty()) names += ", ";
        names += entry.name;
    }
    return names;
}

} // namespace keel
