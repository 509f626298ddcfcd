#pragma once

#include "text/tokenizer/text_range.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

enum class TokenKind {
    unused,   // no token has this id
    ordinary, // from the model's vocabulary
    added,    // stands outside the merges, but is text like any other
    special,  // a mark such as <|begin_of_text|>, not part of the text
};

struct EncodeOptions {
    // Put in what the file's template asks for, as a rule the token that begins a text.
    bool add_special = true;
    // Special tokens written out in the text ("<|eot_id|>") become those tokens. False: they are
    // plain text, for input from people who must not be able to forge them.
    bool parse_special = true;
    // The text goes on behind tokens that are already there: nothing is put before it, no begin
    // token and no space.
    bool continues = false;
};

// A stretch of a text with a will of its own about special tokens. One is found only where it lies
// wholly in stretches that parse them.
struct TextPart {
    std::string_view text;
    bool parse_special = true;
};

struct DecodeOptions {
    bool skip_special = true;
    // The text goes on behind other text. False: it stands alone, and the space that SentencePiece
    // puts before the first word of every text is taken away again.
    bool continues = false;
};

// What `keel inspect` shows of a tokenizer.
struct TokenizerInfo {
    std::string kind;   // "byte-level BPE"
    std::string source; // the file it was read from
    std::size_t ordinary_tokens = 0;
    std::size_t added_tokens = 0; // special ones not counted
    std::size_t special_tokens = 0;
    std::size_t merges = 0;
};

// Text to token ids and back. Immutable after loading; all members are thread-safe.
class Tokenizer {
  public:
    Tokenizer() = default;
    virtual ~Tokenizer() = default;
    Tokenizer(const Tokenizer &) = delete;
    Tokenizer &operator=(const Tokenizer &) = delete;

    // The ids of `text`. What is not valid UTF-8 in it becomes U+FFFD first (replace_invalid_utf8()
    // says exactly how). Throws Error (input) for 2 GiB of text or more, and where a pattern of the
    // file exceeds its limits.
    std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const;
    std::vector<std::int32_t> encode(std::string_view text, bool add_special = true) const {
        return encode(text, EncodeOptions{.add_special = add_special, .parse_special = true});
    }

    // The ids of all parts together, as one text: a token may reach across the border of two parts.
    // The parts' own parse_special counts, not that of the options.
    std::vector<std::int32_t> encode(std::span<const TextPart> parts, EncodeOptions options) const;

    // The text of `ids`: all pieces joined, then U+FFFD for what is not valid UTF-8. Ids that no
    // token has are skipped; skip_special leaves special tokens out.
    std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const;
    std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const {
        return decode(ids, DecodeOptions{.skip_special = skip_special});
    }

    // The bytes that a token stands for: often not a whole character. Empty where no token has the
    // id. Valid as long as the tokenizer.
    virtual std::string_view piece(std::int32_t id) const noexcept = 0;
    virtual TokenKind kind(std::int32_t id) const noexcept = 0;
    // One more than the highest id. A model's own vocab_size may be larger (padding).
    virtual std::int32_t vocab_size() const noexcept = 0;
    // The id of an added or special token, by its exact text.
    virtual std::optional<std::int32_t> find_token(std::string_view text) const = 0;
    virtual TokenizerInfo info() const = 0;
    // Whether a text that begins with a space comes from one that does not (SentencePiece):
    // decode() drops that space.
    virtual bool adds_leading_space() const noexcept { return false; }

    // The tokens that begin and end a text, where the files name them.
    std::optional<std::int32_t> bos_id() const noexcept { return bos_; }
    std::optional<std::int32_t> eos_id() const noexcept { return eos_; }
    // Whether encode() puts bos_id() in front of a text. Some models have such a token but use it
    // only in their chat template.
    bool adds_bos() const;
    // All ids that end a generation, ascending: those of generation_config.json, config.json and
    // tokenizer_config.json together, because instruct models name the end of a turn in one and the
    // end of a text in another.
    const std::vector<std::int32_t> &end_ids() const noexcept { return end_ids_; }
    bool ends_generation(std::int32_t id) const noexcept;

    // piece(), less the space that decode() drops. at_start: no token was shown yet; cleared by the
    // first that is.
    std::string_view without_leading_space(std::int32_t id, bool &at_start) const noexcept;

    // For loaders.
    void set_marks(std::optional<std::int32_t> bos, std::optional<std::int32_t> eos,
                   std::vector<std::int32_t> end_ids);

  protected:
    // Valid UTF-8 of less than 2 GiB.
    struct Input {
        std::string_view text;
        std::span<const TextRange>
            plain; // where special tokens are ordinary text; ascending, disjoint, not empty
        bool add_special = true;
        bool continues = false;
    };

  private:
    virtual void encode_valid(const Input &input, std::vector<std::int32_t> &out) const = 0;

    std::optional<std::int32_t> bos_;
    std::optional<std::int32_t> eos_;
    std::vector<std::int32_t> end_ids_;
};

// The contents of a model folder's files; an empty one counts as missing. One of the first two must
// be there; where both are, tokenizer_json counts.
struct TokenizerFiles {
    std::string_view tokenizer_json;
    std::string_view tokenizer_config_json;
    std::string_view generation_config_json;
    std::string_view config_json;
    std::string folder; // for messages, "FOLDER/tokenizer.json: ..."; may be empty
    std::string_view tokenizer_model = {};
    std::string_view added_tokens_json = {}; // with tokenizer_model
};

// Reads Hugging Face's tokenizer.json or SentencePiece's tokenizer.model. Supported: byte-level BPE
// as GPT-2, Llama 3, Qwen, SmolLM and their like have it, and SentencePiece-style BPE as Llama 2,
// Mistral and Gemma have it (see tokenizer_parsers.hpp); what else a file asks for is refused by
// name rather than ignored. Nothing in the files is trusted. Throws Error (input).
std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerFiles &files);

// The vocabulary of a GGUF file: tokenizer.ggml.model "gpt2" (byte-level BPE; tokenizer.ggml.pre
// names its patterns) or "llama" (SentencePiece). What else a file asks for is refused by name.
class GgufFile;
std::unique_ptr<Tokenizer> parse_gguf_tokenizer(const GgufFile &file);

// From a model folder (its tokenizer.json, else its tokenizer.model), from the path of one of these
// two in it, or from a GGUF file, which need not hold more than the vocabulary.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path &path);

} // namespace keel
