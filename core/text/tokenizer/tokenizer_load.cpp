// Finds a tokenizer's files, chooses the implementation, and reads the special tokens from the
// other files of the folder.
#include "format/gguf.hpp"
#include "text/text_file.hpp"
#include "text/tokenizer/tokenizer.hpp"
#include "text/tokenizer/tokenizer_json.hpp"
#include "text/tokenizer/tokenizer_parsers.hpp"

#include <charconv>
#include <system_error>
#include <unordered_set>

namespace keel {

namespace {

namespace fs = std::filesystem;

constexpr const char *config_file = "tokenizer_config.json";
constexpr JsonLimits limits{size_t{128} << 20, 64, 8'000'000, true};

std::string file_name(const std::string &folder, const char *name) {
    return folder.empty() ? std::string(name) : (fs::path(folder) / name).string();
}

// Parses one of the other JSON files in the tokenizer's folder. Its root must be an object. Returns
// nullopt if the text is empty.
std::optional<JsonDocument> parse_side_file(const std::string &folder, const char *name,
                                            std::string_view text) {
    if (text.empty()) return std::nullopt;
    JsonDocument document(text, file_name(folder, name), limits);
    (void)document.object();
    return document;
}

// Returns the id of a token that tokenizer_config.json gives as a string, or as an object with
// "content".
std::optional<std::int32_t> named_token(const JsonNode &config, const char *key,
                                        const Tokenizer &tokenizer) {
    const auto node = config.find(key);
    if (!node) return std::nullopt;
    const JsonNode content = node->is_object() ? node->at("content") : *node;
    if (auto id = tokenizer.find_token(content.text())) return id;
    content.fail(fmt::format("the tokenizer has no added token {}", quote_text(content.text())));
}

// Returns the ids of eos_token_id and similar keys: an integer or a list of integers. A model's
// vocabulary can be larger than the tokenizer's.
std::vector<std::int32_t> token_ids(const JsonNode &config, const char *key) {
    const auto node = config.find(key);
    if (!node) return {};
    constexpr std::int64_t high = INT32_MAX;
    if (!node->is_array()) {
        // some exporters write -1 if there is no token
        const std::int64_t id = node->integer(-1, high);
        return id < 0 ? std::vector<std::int32_t>() : std::vector{static_cast<std::int32_t>(id)};
    }
    if (node->size() > 1024) node->fail("expected at most 1024 ids, found more");
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < node->size(); ++i)
        ids.push_back(static_cast<std::int32_t>(node->element(i).integer(0, high)));
    return ids;
}

void read_marks(const TokenizerFiles &files, Tokenizer &tokenizer) {
    // the values of the tokenizer's own file are used unless another file gives a value
    std::optional<std::int32_t> bos;
    std::optional<std::int32_t> eos;
    std::vector<std::int32_t> ends;
    if (const auto document =
            parse_side_file(files.folder, config_file, files.tokenizer_config_json)) {
        const JsonNode config = document->root();
        bos = named_token(config, "bos_token", tokenizer);
        eos = named_token(config, "eos_token", tokenizer);
        if (eos) ends.push_back(*eos);
    }
    const std::pair<const char *, std::string_view> side_files[] = {
        {"generation_config.json", files.generation_config_json},
        {"config.json", files.config_json}};
    for (const auto &[file, text] : side_files) {
        const auto document = parse_side_file(files.folder, file, text);
        if (!document) continue;
        const JsonNode config = document->root();
        const std::vector<std::int32_t> bos_ids = token_ids(config, "bos_token_id");
        const std::vector<std::int32_t> eos_ids = token_ids(config, "eos_token_id");
        if (!bos && !bos_ids.empty()) bos = bos_ids.front();
        if (!eos && !eos_ids.empty()) eos = eos_ids.front();
        ends.insert(ends.end(), eos_ids.begin(), eos_ids.end());
    }
    if (!bos) bos = tokenizer.bos_id();
    if (!eos && tokenizer.eos_id()) ends.push_back(*(eos = tokenizer.eos_id()));
    tokenizer.set_marks(bos, eos, std::move(ends));
}

// Reads tokens from the other files in the folder of a tokenizer.model: {"<x>": 32000} in
// added_tokens.json, and {"32000": {"content": ...}} in tokenizer_config.json, which has more flags
// of these tokens.
void read_model_added_tokens(const TokenizerFiles &files, const std::optional<JsonDocument> &config,
                             SpmVocab &vocab) {
    std::unordered_set<std::int32_t> seen;
    const auto add = [&](AddedToken token, std::int64_t id) {
        token.id = static_cast<std::int32_t>(id);
        token.normalized = false; // a normalized token would have to be a piece of the
                                  // SentencePiece model
        if (seen.insert(token.id).second) vocab.added.push_back(std::move(token));
    };
    if (config) {
        if (const auto decoder = config->root().find("added_tokens_decoder")) {
            if (!decoder->is_object()) decoder->expected("an object of ids and tokens");
            for (const auto &[key, value] : decoder->members()) {
                std::int64_t id = -1;
                const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
                if (error != std::errc() || end != key.data() + key.size() || id < 0 ||
                    id > max_token_id)
                    decoder->fail(fmt::format("expected ids from 0 to {}, found {}", max_token_id,
                                              quote_text(key)));
                add(read_added_token_flags(value), id);
            }
        }
    }
    const auto document =
        parse_side_file(files.folder, "added_tokens.json", files.added_tokens_json);
    if (!document) return;
    for (const auto &[content, value] : document->root().members()) {
        const std::int64_t id = value.integer(0, max_token_id);
        AddedToken token;
        token.content = content;
        if (content.empty() || content.size() > AddedTokens::max_content_bytes)
            value.fail(fmt::format("an added token must have 1 to {} bytes, found {}",
                                   AddedTokens::max_content_bytes, content.size()));
        add(std::move(token), id);
    }
}

SpmVocab read_model_file(const TokenizerFiles &files) {
    SpmVocab vocab =
        parse_spm_model(files.tokenizer_model, file_name(files.folder, "tokenizer.model"));
    const auto document = parse_side_file(files.folder, config_file, files.tokenizer_config_json);
    read_model_added_tokens(files, document, vocab);
    bool add_bos = true; // the default of Hugging Face's LlamaTokenizer
    bool add_eos = false;
    if (document) {
        const JsonNode config = document->root();
        add_bos = config.flag_or("add_bos_token", true);
        add_eos = config.flag_or("add_eos_token", false);
        // Hugging Face's key "legacy" means that a space is also added after every special token.
        // Its default is true.
        vocab.prefix_everywhere = config.flag_or("legacy", true);
        vocab.prefix_space = vocab.prefix_space && config.flag_or("add_prefix_space", true);
    }
    if (add_bos && vocab.bos) vocab.prefix.push_back(*vocab.bos);
    if (add_eos && vocab.eos) vocab.suffix.push_back(*vocab.eos);
    return vocab;
}

std::unique_ptr<Tokenizer> parse_model_file(const TokenizerFiles &files) {
    SpmVocab vocab = read_model_file(files);
    const auto bos = vocab.bos;
    const auto eos = vocab.eos;
    std::unique_ptr<Tokenizer> tokenizer = make_spm_bpe(std::move(vocab));
    tokenizer->set_marks(bos, eos, {});
    return tokenizer;
}

} // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerFiles &files) {
    if (files.tokenizer_json.empty() && !files.tokenizer_model.empty()) {
        std::unique_ptr<Tokenizer> tokenizer = parse_model_file(files);
        read_marks(files, *tokenizer);
        return tokenizer;
    }
    const JsonDocument document(files.tokenizer_json, file_name(files.folder, "tokenizer.json"),
                                limits);
    std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer_json(document.object());
    read_marks(files, *tokenizer);
    return tokenizer;
}

SpmVocab load_spm_vocab(const std::filesystem::path &folder, std::string &bytes) {
    bytes = read_text_file(folder / "tokenizer.model", true);
    const std::string config = read_text_file(folder / "tokenizer_config.json", false);
    const std::string added = read_text_file(folder / "added_tokens.json", false);
    return read_model_file({{}, config, {}, {}, folder.string(), bytes, added});
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path &path) {
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(path, ignored);
    if (is_file && is_gguf_file(path)) return parse_gguf_tokenizer(GgufFile(path));
    const fs::path home = is_file ? path.parent_path() : path;
    const bool wants_model = is_file && path.extension() == ".model";
    std::string json;
    std::string model;
    if (!wants_model)
        json =
            read_text_file(home / "tokenizer.json", !fs::exists(home / "tokenizer.model", ignored));
    if (json.empty()) model = read_text_file(wants_model ? path : home / "tokenizer.model", true);
    const std::string tokenizer_config = read_text_file(home / "tokenizer_config.json", false);
    const std::string generation_config = read_text_file(home / "generation_config.json", false);
    const std::string config = read_text_file(home / "config.json", false);
    const std::string added =
        json.empty() ? read_text_file(home / "added_tokens.json", false) : std::string();
    return parse_tokenizer(
        {json, tokenizer_config, generation_config, config, home.string(), model, added});
}

} // namespace keel
