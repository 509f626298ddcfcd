// Writes a folder's tokenizer as GGUF metadata.

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "convert/gguf_write.hpp"
#include "convert/json_values.hpp"
#include "model/architectures.hpp"
#include "model/gguf_model.hpp"
#include "platform/paths.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer/gguf_pre_tokenizers.hpp"
#include "text/tokenizer/tokenizer_parsers.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

namespace keel::gguf {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr JsonLimits tokenizer_limits{size_t{128} << 20, 64, 8'000'000};
constexpr JsonLimits side_limits{size_t{16} << 20, 32, 200'000};

// Kinds of tokens, with the numbers of GGUF.
enum Kind : int32_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
};

class TokenizerWriter {
  public:
    TokenizerWriter(const fs::path &folder, const ModelConfig &config, GgufWriter &out)
        : folder_(folder), name_((folder / "tokenizer.json").string()), config_(config), out_(out) {
        std::error_code ignored;
        const fs::path side = folder / "tokenizer_config.json";
        if (fs::exists(side, ignored)) side_ = read_object(side, side_limits);
        if (!fs::exists(name_, ignored)) {
            const std::string model = (folder / "tokenizer.model").string();
            if (!fs::exists(model, ignored))
                throw_error(ErrorKind::input,
                            "{}: the file is missing; a GGUF file also contains the tokenizer, so "
                            "the model folder needs this file or tokenizer.model",
                            name_);
            name_ = model;
            is_spm_model_ = true;
            return;
        }
        root_ = read_object(name_, tokenizer_limits);
        if (const json *found = member(root_, "model")) model_ = *found;
        if (text_of(model_, "type") != "BPE" && !text_of(model_, "type").empty())
            fail("model.type", fmt::format("expected the type BPE, found '{}'; Keel cannot write a "
                                           "GGUF file with such a tokenizer",
                                           printable(text_of(model_, "type"))));
    }

    void write() {
        make_room();
        if (is_spm_model_) {
            write_spm_model();
        } else {
            write_tokenizer_json();
        }
        out_.add("tokenizer.ggml.tokens", tokens_);
        out_.add("tokenizer.ggml.token_type", std::span<const int32_t>(kinds_));
        write_marks();
        if (const std::string chat = load_chat_template(folder_).jinja; !chat.empty())
            out_.add("tokenizer.chat_template", chat);
    }

  private:
    void write_tokenizer_json() {
        byte_fallback_ = flag_of(model_, "byte_fallback");
        read_vocabulary();
        read_added();
        begins_ = template_has(true);
        ends_ = template_has(false);
        if (byte_fallback_) {
            write_sentencepiece();
        } else {
            write_byte_level();
        }
    }

    // Writes the tokenizer of a folder that has a tokenizer.model. Also reads the folder's other
    // tokenizer files. In tokenizer_config.json, the key "legacy" says whether a space also follows
    // special tokens. GGUF has no such key: its readers always add the space.
    void write_spm_model() {
        std::string bytes;
        const SpmVocab vocab = load_spm_vocab(folder_, bytes);
        if (vocab.collapse_spaces)
            fail("remove_extra_whitespaces",
                 "GGUF has no key for this setting, so the GGUF file would tokenize differently");
        byte_fallback_ = true; // SentencePiece vocabularies always have an unknown token and scores
        std::vector<float> scores(tokens_.size(), 0);
        for (size_t i = 0; i < vocab.pieces.size(); ++i) {
            const SpmVocab::Piece &piece = vocab.pieces[i];
            const int32_t id = checked_id(json(i), "a piece");
            put(id, std::string(piece.text), static_cast<Kind>(piece.type));
            scores[i] = piece.score;
            if (piece.type == SpmVocab::Type::byte && !vocab.byte_fallback)
                fail("byte_fallback", "the vocabulary has byte tokens (<0x00> to <0xFF>), but "
                                      "byte_fallback is false; GGUF has no key for this setting");
            if (piece.type != SpmVocab::Type::normal) ids_.emplace(piece.text, id);
        }
        for (const AddedToken &token : vocab.added) {
            const int32_t id = checked_id(json(static_cast<uint64_t>(token.id)), "an added token");
            put(id, token.content, token.special ? control : user_defined);
            ids_[token.content] = id;
        }
        spm_bos_ = vocab.bos;
        spm_eos_ = vocab.eos;
        begins_ = !vocab.prefix.empty();
        ends_ = !vocab.suffix.empty();
        add_sentencepiece(vocab.prefix_space, scores);
    }

    [[noreturn]] void fail(std::string_view place, std::string_view message) const {
        throw_error(ErrorKind::input, "{}: {}: {}", name_, place, message);
    }

    int32_t checked_id(const json &id, const char *place) const {
        if (!id.is_number_unsigned() ||
            id.get<uint64_t>() >= static_cast<uint64_t>(config_.vocab_size)) {
            fail(place, fmt::format("expected ids from 0 to {}, found {}", config_.vocab_size - 1,
                                    shown(id)));
        }
        return id.get<int32_t>();
    }

    void put(int32_t id, const std::string &text, Kind kind) {
        tokens_[static_cast<size_t>(id)] = text;
        kinds_[static_cast<size_t>(id)] = kind;
    }

    // The model's vocabulary can be larger than the tokenizer's. Ids without a token get names that
    // occur in no text.
    void make_room() {
        const auto size = static_cast<size_t>(config_.vocab_size);
        tokens_.resize(size);
        kinds_.assign(size, unused);
        for (size_t i = 0; i < size; ++i) tokens_[i] = fmt::format("[PAD{}]", i);
    }

    void read_vocabulary() {
        const json *vocabulary = member(model_, "vocab");
        if (vocabulary == nullptr || !vocabulary->is_object())
            fail("model.vocab", "expected an object");
        const std::string unknown_token = text_of(model_, "unk_token");
        for (const auto &[text, id] : vocabulary->items()) {
            const bool is_byte = byte_fallback_ && text.size() == 6 && text.starts_with("<0x") &&
                                 text.ends_with(">");
            put(checked_id(id, "model.vocab"), text,
                is_byte                                   ? byte
                : byte_fallback_ && text == unknown_token ? unknown
                                                          : normal);
        }
    }

    void read_added() {
        const json *added = member(root_, "added_tokens");
        if (added == nullptr) return;
        if (!added->is_array()) fail("added_tokens", "expected an array");
        for (const json &token : *added) {
            const json *id = member(token, "id");
            if (id == nullptr)
                fail("added_tokens",
                     "expected an id in each added token, found a token without an id");
            const int32_t number = checked_id(*id, "added_tokens");
            const bool special = flag_of(token, "special");
            const std::string text = text_of(token, "content");
            ids_[text] = number;
            if (kinds_[static_cast<size_t>(number)] == unknown) continue;
            put(number, text, special ? control : user_defined);
        }
    }

    // Returns the merges, each as "a b". In the file, a merge is "a b" or ["a", "b"].
    std::vector<std::string> merges() const {
        const json *list = member(model_, "merges");
        if (list == nullptr || !list->is_array()) fail("model.merges", "expected an array");
        std::vector<std::string> texts;
        for (const json &merge : *list) {
            if (merge.is_string()) {
                texts.push_back(merge.get<std::string>());
            } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                       merge[1].is_string()) {
                texts.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
            } else {
                fail("model.merges", "expected \"a b\" or [\"a\", \"b\"], found " + shown(merge));
            }
        }
        return texts;
    }

    std::string splitting() const {
        const std::vector<json> steps = steps_of(root_, "pre_tokenizer", "pretokenizers");
        if (steps.empty() || text_of(steps.back(), "type") != "ByteLevel")
            fail("pre_tokenizer",
                 "GGUF has no name for a pre-tokenizer that does not end in ByteLevel");
        const json &last = steps.back();
        if (flag_of(last, "add_prefix_space", true))
            fail("pre_tokenizer", "GGUF has no key for add_prefix_space, so the GGUF file would "
                                  "tokenize differently");
        std::vector<std::string> found;
        for (const json &step : std::span(steps).first(steps.size() - 1)) {
            const std::string type = text_of(step, "type");
            if (type == "Digits" && flag_of(step, "individual_digits"))
                found.emplace_back(single_digit_pattern());
            else if (const json *regex = member(step, "pattern");
                     type == "Split" && !flag_of(step, "invert") && regex != nullptr)
                found.push_back(text_of(*regex, "Regex"));
            else
                found.emplace_back(); // not a known pattern
        }
        if (flag_of(last, "use_regex", true)) found.emplace_back(byte_level_pattern());
        const std::vector<std::string_view> patterns(found.begin(), found.end());
        const bool ignores = flag_of(model_, "ignore_merges"), is_qwen = is_qwen_model();
        if (const auto name = name_gguf_pre_tokenizer(
                patterns, ignores, is_qwen ? std::optional(is_nfc()) : std::nullopt);
            name && (is_qwen || !is_nfc()))
            return std::string(*name);
        if (is_nfc() && name_gguf_pre_tokenizer(patterns, ignores))
            fail("normalizer",
                 "expected no normalizer, because programs that read GGUF compose characters (NFC) "
                 "only if the pre-tokenizer is Qwen's; found NFC with another pre-tokenizer");
        fail("pre_tokenizer", "expected one of the patterns for which GGUF has a name (GPT-2, "
                              "Llama 3, Qwen 2, SmolLM, Tekken), found another pattern");
    }

    void write_byte_level() {
        if (member(root_, "normalizer") != nullptr && !is_nfc())
            fail("normalizer",
                 "GGUF has no key for this setting, so the GGUF file would tokenize differently");
        out_.add("tokenizer.ggml.model", "gpt2");
        out_.add("tokenizer.ggml.pre", std::string_view(splitting()));
        const std::vector<std::string> texts = merges();
        out_.add("tokenizer.ggml.merges", texts);
    }

    // Returns true if the tokenizer composes characters first (NFC), as Qwen's tokenizers do.
    // llama.cpp skips the composition and uses the same pre-tokenizer name.
    bool is_nfc() const {
        const json *normalizer = member(root_, "normalizer");
        return normalizer != nullptr && text_of(*normalizer, "type") == "NFC";
    }

    // Keel's reader of GGUF files also uses the name of the architecture to recognize a Qwen model.
    bool is_qwen_model() const {
        const gguf::ArchitectureName *name = gguf::find_by_architecture(config_.architecture->name);
        return name != nullptr && name->name.starts_with("qwen");
    }

    // SentencePiece's BPE first merges the pair whose token has the best score. So an earlier merge
    // gets a better score.
    void write_sentencepiece() {
        const std::vector<std::string> texts = merges();
        std::unordered_map<std::string, float> ranks;
        for (size_t i = 0; i < texts.size(); ++i) {
            std::string joined = texts[i];
            if (const size_t space = joined.find(' '); space != std::string::npos)
                joined.erase(space, 1);
            // if a token is the result of several merges, the first merge counts
            ranks.emplace(std::move(joined), -static_cast<float>(i));
        }
        std::vector<float> scores;
        for (size_t i = 0; i < tokens_.size(); ++i) {
            const auto rank = ranks.find(tokens_[i]);
            const float last = -static_cast<float>(texts.size());
            scores.push_back(kinds_[i] != normal ? 0 : rank == ranks.end() ? last : rank->second);
        }
        add_sentencepiece(adds_space(), scores);
    }

    void add_sentencepiece(bool prefix_space, std::span<const float> scores) {
        out_.add("tokenizer.ggml.model", "llama");
        out_.add("tokenizer.ggml.pre", "default");
        out_.add("tokenizer.ggml.add_space_prefix", prefix_space);
        out_.add("tokenizer.ggml.scores", scores);
    }

    // Returns true if the tokenizer adds a space in front of a text. A normalizer or the
    // pre-tokenizer adds it.
    bool adds_space() const {
        for (const json &step : steps_of(root_, "normalizer", "normalizers")) {
            const std::string type = text_of(step, "type");
            if (type == "Prepend") return true;
            if (type != "Replace")
                fail("normalizer",
                     fmt::format("GGUF has no key for the normalizer '{}'", printable(type)));
        }
        for (const json &step : steps_of(root_, "pre_tokenizer", "pretokenizers")) {
            if (text_of(step, "type") != "Metaspace") continue;
            const std::string scheme = text_of(step, "prepend_scheme");
            return scheme.empty() ? flag_of(step, "add_prefix_space", true) : scheme != "never";
        }
        return false;
    }

    // Returns the id of a token that tokenizer_config.json names.
    std::optional<int32_t> named(const char *key) const {
        const json *token = member(side_, key);
        if (token == nullptr) return std::nullopt;
        const std::string text =
            token->is_string() ? token->get<std::string>() : text_of(*token, "content");
        const auto found = ids_.find(text);
        return found == ids_.end() ? std::nullopt : std::optional(found->second);
    }

    // Returns true if the template for a single text has a special token at its front or its end.
    bool template_has(bool front) const {
        for (const json &step : steps_of(root_, "post_processor", "processors")) {
            const json *single = member(step, "single");
            if (text_of(step, "type") != "TemplateProcessing" || single == nullptr ||
                !single->is_array() || single->empty())
                continue;
            return member(front ? single->front() : single->back(), "SpecialToken") != nullptr;
        }
        return false;
    }

    void write_marks() {
        std::optional<int32_t> bos = named("bos_token"), eos = named("eos_token");
        if (!bos && config_.bos_id) bos = static_cast<int32_t>(*config_.bos_id);
        if (!eos && !config_.eos_ids.empty()) eos = static_cast<int32_t>(config_.eos_ids.front());
        if (!bos) bos = spm_bos_;
        if (!eos) eos = spm_eos_;
        if (is_spm_model_ && ((begins_ && bos != spm_bos_) || (ends_ && eos != spm_eos_)))
            fail("bos_token, eos_token",
                 "expected the tokens that tokenizer.model adds to a text, found other tokens; "
                 "GGUF can store only one bos and one eos token");
        const auto add = [&](const char *key, std::optional<int32_t> id) {
            if (id) out_.add(key, static_cast<uint32_t>(*id));
        };
        add("tokenizer.ggml.bos_token_id", bos);
        add("tokenizer.ggml.eos_token_id", eos);
        // GGUF has two more keys for tokens that end a text.
        std::vector<const char *> more{"tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.eot_token_id"};
        for (const int64_t id : config_.eos_ids) {
            if (id == eos || more.empty()) continue;
            add(more.back(), static_cast<int32_t>(id));
            more.pop_back();
        }
        add("tokenizer.ggml.padding_token_id", named("pad_token"));
        if (byte_fallback_) add("tokenizer.ggml.unknown_token_id", named("unk_token"));
        out_.add("tokenizer.ggml.add_bos_token", begins_);
        out_.add("tokenizer.ggml.add_eos_token", ends_);
    }

    fs::path folder_;
    std::string name_; // path of the file with the vocabulary
    const ModelConfig &config_;
    GgufWriter &out_;
    json root_, side_, model_;
    bool is_spm_model_ = false;                // true if the vocabulary is a tokenizer.model
    bool byte_fallback_ = false;               // true: the vocabulary is written as SentencePiece's
    bool begins_ = false, ends_ = false;       // whether a text gets a begin token and an end token
    std::optional<int32_t> spm_bos_, spm_eos_; // from a tokenizer.model
    std::vector<std::string> tokens_;
    std::vector<int32_t> kinds_;
    std::unordered_map<std::string, int32_t> ids_; // ids of added tokens, by text
};

} // namespace

void add_tokenizer_metadata(const fs::path &folder, const ModelConfig &config, GgufWriter &out) {
    TokenizerWriter(folder, config, out).write();
}

} // namespace keel::gguf
