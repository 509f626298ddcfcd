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
    added,    // not part of the merges, but ordinary text
    special,  // a mark such as <|begin_of_text|>, not part of the text
};

struct EncodeOptions {
    // true: adds the tokens that the tokenizer file requires, usually the token that begins a text.
    bool add_special = true;
    // true: a special token that is written in the text ("<|eot_id|>") becomes this token. false:
    // it is plain text. Use false for input from users who must not be able to insert special
    // tokens.
    bool parse_special = true;
    // true: the text follows tokens that are already in the cache. So no begin token and no space
    // is added before the text.
    bool continues = false;
};

// A part of a text, with its own setting for special tokens. A special token is found only if it is
// completely inside parts with parse_special.
struct TextPart {
    std::string_view text;
    bool parse_special = true;
};

struct DecodeOptions {
    bool skip_special = true;
    // true: the text follows other text. false: the text is a whole text, so the space that
    // SentencePiece adds before the first word is removed.
    bool continues = false;
};

// The properties of a tokenizer that `keel inspect` shows.
struct TokenizerInfo {
    std::string kind;   // for example "byte-level BPE"
    std::string source; // the file from which it was read
    std::size_t ordinary_tokens = 0;
    std::size_t added_tokens = 0; // number of added tokens that are not special
    std::size_t special_tokens = 0;
    std::size_t merges = 0;
};

// Converts text to token ids and back. Immutable after loading. All members are thread-safe.
class Tokenizer {
  public:
    Tokenizer() = default;
    virtual ~Tokenizer() = default;
    Tokenizer(const Tokenizer &) = delete;
    Tokenizer &operator=(const Tokenizer &) = delete;

    // Returns the ids of `text`. Bytes that are not valid UTF-8 first become U+FFFD, see
    // replace_invalid_utf8(). Throws Error(input) for a text of 2 GiB or more, and if a pattern of
    // the file exceeds its limits.
    std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const;
    std::vector<std::int32_t> encode(std::string_view text, bool add_special = true) const {
        return encode(text, EncodeOptions{.add_special = add_special, .parse_special = true});
    }

    // Returns the ids of all parts, encoded as one text. So a token can cross the border of two
    // parts. The setting parse_special of each part is used, not the setting in the options.
    std::vector<std::int32_t> encode(std::span<const TextPart> parts, EncodeOptions options) const;

    // Returns the text of `ids`: joins all pieces, then replaces invalid UTF-8 by U+FFFD. Ids
    // without a token are skipped. `skip_special` leaves out special tokens.
    std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const;
    std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const {
        return decode(ids, DecodeOptions{.skip_special = skip_special});
    }

    // Returns the bytes of a token. They are often not a whole character. Empty if no token has the
    // id. Valid as long as the tokenizer exists.
    virtual std::string_view piece(std::int32_t id) const noexcept = 0;
    virtual TokenKind kind(std::int32_t id) const noexcept = 0;
    // Returns the highest id plus one. The vocab_size of a model can be larger, because of padding.
    virtual std::int32_t vocab_size() const noexcept = 0;
    // Returns the id of an added or special token with exactly this text.
    virtual std::optional<std::int32_t> find_token(std::string_view text) const = 0;
    virtual TokenizerInfo info() const = 0;
    // Returns true if the tokenizer adds a space before a text that does not begin with a space
    // (SentencePiece). decode() then drops the first space.
    virtual bool adds_leading_space() const noexcept { return false; }

    // The tokens that begin and end a text, if the files give them.
    std::optional<std::int32_t> bos_id() const noexcept { return bos_; }
    std::optional<std::int32_t> eos_id() const noexcept { return eos_; }
    // Returns true if encode() adds bos_id() before a text. Some models have a begin token, but use
    // it only in their chat template.
    bool adds_bos() const;
    // Returns all ids that end a generation, ascending. The ids come from generation_config.json,
    // config.json and tokenizer_config.json. Three files are needed: instruct models give the end
    // of a turn in one file and the end of a text in another file.
    const std::vector<std::int32_t> &end_ids() const noexcept { return end_ids_; }
    bool ends_generation(std::int32_t id) const noexcept;

    // Returns piece() without the space that decode() drops at the start of a text. `at_start`:
    // true until a token has given text. The function then sets `at_start` to false.
    std::string_view without_leading_space(std::int32_t id, bool &at_start) const noexcept;

    // The loaders call this function.
    void set_marks(std::optional<std::int32_t> bos, std::optional<std::int32_t> eos,
                   std::vector<std::int32_t> end_ids);

  protected:
    // Valid UTF-8 text of less than 2 GiB.
    struct Input {
        std::string_view text;
        // ranges in which special tokens are ordinary text; ascending, disjoint, not empty
        std::span<const TextRange> plain;
        bool add_special = true;
        bool continues = false;
    };

  private:
    virtual void encode_valid(const Input &input, std::vector<std::int32_t> &out) const = 0;

    std::optional<std::int32_t> bos_;
    std::optional<std::int32_t> eos_;
    std::vector<std::int32_t> end_ids_;
};

// The contents of the files of a model folder. An empty text counts as a missing file.
// tokenizer_json or tokenizer_model must be given. If both are, tokenizer_json is used.
struct TokenizerFiles {
    std::string_view tokenizer_json;
    std::string_view tokenizer_config_json;
    std::string_view generation_config_json;
    std::string_view config_json;
    std::string folder; // for messages: "FOLDER/tokenizer.json: ..."; may be empty
    std::string_view tokenizer_model = {};
    std::string_view added_tokens_json = {}; // used with tokenizer_model
};

// Reads Hugging Face's tokenizer.json or SentencePiece's tokenizer.model. Two kinds are supported:
// byte-level BPE as in GPT-2, Llama 3, Qwen and SmolLM, and SentencePiece-style BPE as in Llama 2,
// Mistral and Gemma (see tokenizer_parsers.hpp). Throws an error for any other feature, and names
// the feature. No feature is ignored. The files are not trusted. Throws Error(input).
std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerFiles &files);

// Reads the vocabulary of a GGUF file. tokenizer.ggml.model is "gpt2" (byte-level BPE, with its
// patterns named by tokenizer.ggml.pre) or "llama" (SentencePiece). Throws an error for any other
// value, and names the value.
class GgufFile;
std::unique_ptr<Tokenizer> parse_gguf_tokenizer(const GgufFile &file);

// Loads a tokenizer. `path` is one of:
// - a model folder; its tokenizer.json is read, or its tokenizer.model if there is no
//   tokenizer.json
// - the path of one of these two files
// - a GGUF file; a GGUF file without tensors is enough
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path &path);

} // namespace keel
