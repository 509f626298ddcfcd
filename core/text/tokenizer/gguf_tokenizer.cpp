// Makes a ByteLevelBpe or SpmBpe from the vocabulary in a GGUF file.
#include "base/display.hpp"
#include "base/error.hpp"
#include "format/gguf.hpp"
#include "text/tokenizer/byte_level_bpe.hpp"
#include "text/tokenizer/gguf_pre_tokenizers.hpp"
#include "text/tokenizer/spm_bpe.hpp"
#include "text/tokenizer/tokenizer_json.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace keel {

namespace {

using Type = SpmVocab::Type;

constexpr const char *tokens_key = "tokenizer.ggml.tokens";
constexpr const char *merges_key = "tokenizer.ggml.merges";
constexpr const char *types_key = "tokenizer.ggml.token_type";
constexpr const char *scores_key = "tokenizer.ggml.scores";
constexpr std::uint64_t max_tokens = max_token_id + 1;
constexpr std::uint64_t max_merges = 8'000'000;

std::vector<std::string_view> read_tokens(const GgufFile &file) {
    auto tokens = file.texts(tokens_key, max_tokens);
    if (!tokens)
        file.fail(tokens_key, "is missing, so the file has no vocabulary; convert the model again "
                              "with its tokenizer");
    if (tokens->empty()) file.fail(tokens_key, "the vocabulary is empty");
    return std::move(*tokens);
}

// Returns the type of each token. If the file does not have the key, the type follows from the text
// of the token.
std::vector<Type> read_types(const GgufFile &file, const std::vector<std::string_view> &tokens) {
    std::vector<Type> types(tokens.size(), Type::normal);
    const auto numbers = file.integers(types_key, max_tokens, 0, 6);
    if (!numbers) {
        for (std::size_t i = 0; i < tokens.size(); ++i)
            if (byte_of_piece(tokens[i])) types[i] = Type::byte;
        return types;
    }
    if (numbers->size() != tokens.size())
        file.fail(types_key, fmt::format("expected one number per token ({}), found {}",
                                         tokens.size(), numbers->size()));
    for (std::size_t i = 0; i < tokens.size(); ++i)
        if ((*numbers)[i] != 0) types[i] = static_cast<Type>((*numbers)[i]);
    return types;
}

std::optional<std::int32_t> token_id(const GgufFile &file, const char *key, std::size_t tokens) {
    const auto id = file.integer(key);
    // some writers use this value if there is no token
    if (!id || *id < 0 || *id == UINT32_MAX) return std::nullopt;
    const auto last = static_cast<std::int64_t>(tokens) - 1;
    if (*id > last)
        file.fail(key, fmt::format("expected an integer from 0 to {}, found {}", last, *id));
    return static_cast<std::int32_t>(*id);
}

// The special tokens of a vocabulary: the tokens for which the file has a key, and the tokens that
// end a turn in chat models. A file gives only one end token, usually that of the base model, so
// the other end tokens are found by their text.
struct Marks {
    std::optional<std::int32_t> bos;
    std::optional<std::int32_t> eos;
    std::vector<std::int32_t> ends;
};

Marks read_marks(const GgufFile &file, const std::vector<std::string_view> &tokens,
                 const std::vector<Type> &types) {
    constexpr std::array<std::string_view, 6> end_names{"<|eot_id|>",      "<|eom_id|>",
                                                        "<|im_end|>",      "<end_of_turn>",
                                                        "<|end_of_text|>", "<|endoftext|>"};
    Marks marks;
    marks.bos = token_id(file, "tokenizer.ggml.bos_token_id", tokens.size());
    marks.eos = token_id(file, "tokenizer.ggml.eos_token_id", tokens.size());
    if (marks.eos) marks.ends.push_back(*marks.eos);
    for (const char *key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
        if (const auto id = token_id(file, key, tokens.size())) marks.ends.push_back(*id);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        if (types[i] == Type::control &&
            std::find(end_names.begin(), end_names.end(), tokens[i]) != end_names.end())
            marks.ends.push_back(static_cast<std::int32_t>(i));
    return marks;
}

// Returns the tokens that the file, or the kind of vocabulary, requires before and after a text.
TextFrame read_frame(const GgufFile &file, const Marks &marks, bool add_bos) {
    TextFrame frame;
    if (file.boolean("tokenizer.ggml.add_bos_token").value_or(add_bos)) {
        if (!marks.bos)
            file.fail(
                "tokenizer.ggml.bos_token_id",
                "is missing, but each text must begin with the token that this key names; convert "
                "the model again with this key, or with tokenizer.ggml.add_bos_token = false");
        frame.prefix.push_back(*marks.bos);
    }
    if (file.boolean("tokenizer.ggml.add_eos_token").value_or(false)) {
        if (!marks.eos)
            file.fail(
                "tokenizer.ggml.eos_token_id",
                "is missing, but each text must end with the token that this key names; convert "
                "the model again with this key, or with tokenizer.ggml.add_eos_token = false");
        frame.suffix.push_back(*marks.eos);
    }
    return frame;
}

std::unique_ptr<Tokenizer> parse_spm(const GgufFile &file) {
    const std::vector<std::string_view> tokens = read_tokens(file);
    const std::vector<Type> types = read_types(file, tokens);
    const auto scores = file.numbers(scores_key, max_tokens);
    if (!scores || scores->size() != tokens.size())
        file.fail(scores_key, fmt::format("expected one number per token ({}), found {}",
                                          tokens.size(), scores ? scores->size() : 0));
    Marks marks = read_marks(file, tokens, types);
    SpmVocab vocab;
    vocab.source = file.name();
    for (std::size_t i = 0; i < tokens.size(); ++i)
        vocab.pieces.push_back({tokens[i], (*scores)[i], types[i]});
    vocab.prefix_space = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    TextFrame frame = read_frame(file, marks, true);
    vocab.prefix = std::move(frame.prefix);
    vocab.suffix = std::move(frame.suffix);
    std::unique_ptr<Tokenizer> tokenizer = make_spm_bpe(std::move(vocab));
    tokenizer->set_marks(marks.bos, marks.eos, std::move(marks.ends));
    return tokenizer;
}

// Reads a byte-level BPE. Uses the names of Hugging Face's tokenizer.json.
class ByteLevelReader {
  public:
    explicit ByteLevelReader(const GgufFile &file)
        : file_(&file), tokens_(read_tokens(file)), types_(read_types(file, tokens_)) {
        ids_.reserve(tokens_.size());
        for (std::size_t i = 0; i < tokens_.size(); ++i)
            // if tokens are equal, the first one wins
            ids_.emplace(tokens_[i], static_cast<std::int32_t>(i));
    }

    std::unique_ptr<Tokenizer> read() {
        const auto name = file_->text("tokenizer.ggml.pre").value_or("default");
        const auto pre = find_gguf_pre_tokenizer(name);
        if (!pre)
            file_->fail("tokenizer.ggml.pre",
                        fmt::format("the pre-tokenizer {} is not supported; Keel supports {}",
                                    quote_text(name), gguf_pre_tokenizer_names()));
        Marks marks = read_marks(*file_, tokens_, types_);
        TextFrame frame = read_frame(*file_, marks, pre->add_bos && marks.bos);
        ByteLevelBpe::Parts parts;
        parts.source = file_->name();
        parts.prefix = std::move(frame.prefix);
        parts.suffix = std::move(frame.suffix);
        // A GGUF file does not tell whether the tokenizer composes characters. Qwen's tokenizer
        // does, and other models use the same name for the pattern.
        if (pre->compose_for_qwen &&
            file_->text("general.architecture").value_or("").starts_with("qwen"))
            parts.normalizer.add_composition(false);
        for (const std::string_view pattern : pre->patterns)
            parts.pre_tokenizer.add_split(
                SplitRegex(pattern, SplitRegex::Syntax::regex, std::string(name)),
                SplitBehavior::isolated, false);
        parts.pre_tokenizer.set_byte_level(false, false);
        fill_bpe(pre->ignore_merges, parts.bpe);
        fill_tokens(parts);
        auto tokenizer = std::make_unique<ByteLevelBpe>(std::move(parts));
        tokenizer->set_marks(marks.bos, marks.eos, std::move(marks.ends));
        return tokenizer;
    }

  private:
    std::int32_t id_of(std::string_view token, std::size_t merge) const {
        const auto it = ids_.find(token);
        if (it == ids_.end())
            file_->fail(merges_key, fmt::format("merge {}: {} is not in {}; the file is damaged",
                                                merge, quote_text(token), tokens_key));
        return it->second;
    }

    void fill_bpe(bool whole_words, Bpe &bpe) const {
        for (unsigned b = 0; b < 256; ++b) {
            const auto byte = static_cast<unsigned char>(b);
            if (const auto it = ids_.find(symbol_of_byte(byte)); it != ids_.end())
                bpe.set_byte(byte, it->second);
        }
        if (bpe.missing_bytes() == 256)
            file_->fail(tokens_key, "expected tokens for single bytes, because "
                                    "tokenizer.ggml.model = gpt2 means byte-level BPE; found none");
        const auto merges = file_->texts(merges_key, max_merges);
        if (!merges)
            file_->fail(merges_key,
                        "is missing, but byte-level BPE needs merges; convert the model again");
        bpe.merges().reserve(merges->size());
        std::string joined;
        for (std::size_t i = 0; i < merges->size(); ++i) {
            const std::string_view rule = (*merges)[i];
            const std::size_t space = rule.find(' ');
            if (space == std::string_view::npos ||
                rule.find(' ', space + 1) != std::string_view::npos)
                file_->fail(merges_key, fmt::format("merge {}: expected \"a b\", found {}", i,
                                                    quote_text(rule)));
            const std::string_view left = rule.substr(0, space);
            const std::string_view right = rule.substr(space + 1);
            joined.assign(left);
            joined += right;
            bpe.merges().add(id_of(left, i), id_of(right, i), static_cast<std::uint32_t>(i),
                             id_of(joined, i));
        }
        if (!whole_words) return;
        for (std::size_t i = 0; i < tokens_.size(); ++i)
            if (types_[i] == Type::normal && is_valid_utf8(tokens_[i]))
                if (auto bytes = bytes_of_symbols(tokens_[i]))
                    bpe.add_whole_word(std::move(*bytes), static_cast<std::int32_t>(i));
    }

    void fill_tokens(ByteLevelBpe::Parts &parts) const {
        std::vector<PieceTable::Entry> entries;
        std::vector<AddedToken> added;
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            const auto id = static_cast<std::int32_t>(i);
            if (!is_valid_utf8(tokens_[i]))
                file_->fail(tokens_key, fmt::format("token {} is not valid UTF-8", i));
            if (types_[i] == Type::normal || types_[i] == Type::unused || types_[i] == Type::byte) {
                auto bytes = bytes_of_symbols(tokens_[i]);
                entries.push_back(
                    {id, bytes ? std::move(*bytes) : std::string(tokens_[i]), TokenKind::ordinary});
                continue;
            }
            AddedToken token;
            token.id = id;
            token.content = tokens_[i];
            token.special = types_[i] != Type::user_defined;
            token.normalized = false;
            entries.push_back(
                {id, token.content, token.special ? TokenKind::special : TokenKind::added});
            if (token.content.empty() || ids_.at(tokens_[i]) != id) continue;
            if (token.content.size() > AddedTokens::max_content_bytes)
                file_->fail(
                    tokens_key,
                    fmt::format(
                        "token {} is a special or added token, so it may have at most {} bytes", i,
                        AddedTokens::max_content_bytes));
            added.push_back(std::move(token));
        }
        parts.pieces.assign(std::move(entries));
        parts.added = AddedTokens(std::move(added));
    }

    const GgufFile *file_;
    std::vector<std::string_view> tokens_;
    std::vector<Type> types_;
    std::unordered_map<std::string_view, std::int32_t> ids_;
};

} // namespace

std::unique_ptr<Tokenizer> parse_gguf_tokenizer(const GgufFile &file) {
    constexpr const char *key = "tokenizer.ggml.model";
    const auto kind = file.text(key);
    if (!kind)
        file.fail(key, "is missing, so the file has no tokenizer; convert the model again "
                       "with its tokenizer");
    if (*kind == "llama") return parse_spm(file);
    if (*kind == "gpt2") return ByteLevelReader(file).read();
    file.fail(key, fmt::format("the kind {} is not supported; Keel reads gpt2 (byte-level BPE) and "
                               "llama (SentencePiece)",
                               quote_text(*kind)));
}

} // namespace keel
