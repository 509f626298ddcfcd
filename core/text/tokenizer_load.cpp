// Finding a tokenizer's files, choosing the implementation, and the marks that the side files name.
#include "text/text_file.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_parsers.hpp"

#include <system_error>

namespace keel {

namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

std::string file_name(const std::string &folder, const char *name) {
    return folder.empty() ? std::string(name) : (fs::path(folder) / name).string();
}

// A side file: its tree, or null if there is none. Its top must be an object.
Json parse_side_file(std::string_view text, const std::string &name) {
    if (text.empty()) return nullptr;
    Json tree = parse_untrusted_json(text, name);
    if (!tree.is_object()) JsonNode(tree, name).expected("an object");
    return tree;
}

// The id of a token that tokenizer_config.json names, as a string or as an object with "content".
std::optional<std::int32_t> named_token(const JsonNode &config, const char *key, const Tokenizer &tokenizer) {
    const auto node = config.find(key);
    if (!node) return std::nullopt;
    const JsonNode content = node->raw().is_object() ? node->at("content") : *node;
    if (auto id = tokenizer.find_token(content.text())) return id;
    content.fail(fmt::format("the tokenizer has no added token {}", quote_text(content.text())));
}

// eos_token_id and its like: an integer or a list of integers. A model's vocabulary may be larger than the tokenizer's.
std::vector<std::int32_t> token_ids(const JsonNode &config, const char *key) {
    const auto node = config.find(key);
    if (!node) return {};
    constexpr std::int64_t high = INT32_MAX;
    if (!node->raw().is_array()) {
        if (node->raw() == -1) return {}; // some exporters write "none" so
        return {static_cast<std::int32_t>(node->integer(0, high))};
    }
    if (node->array_size() > 1024) node->fail("more than 1024 ids");
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < node->array_size(); ++i)
        ids.push_back(static_cast<std::int32_t>(node->element(i).integer(0, high)));
    return ids;
}

void read_marks(const TokenizerFiles &files, Tokenizer &tokenizer) {
    std::optional<std::int32_t> bos;
    std::optional<std::int32_t> eos;
    std::vector<std::int32_t> ends;
    const std::string name = file_name(files.folder, "tokenizer_config.json");
    if (const Json tree = parse_side_file(files.tokenizer_config_json, name); !tree.is_null()) {
        const JsonNode config(tree, name);
        bos = named_token(config, "bos_token", tokenizer);
        eos = named_token(config, "eos_token", tokenizer);
        if (eos) ends.push_back(*eos);
    }
    const std::pair<const char *, std::string_view> side_files[] = {
        {"generation_config.json", files.generation_config_json}, {"config.json", files.config_json}};
    for (const auto &[file, text] : side_files) {
        const std::string side_name = file_name(files.folder, file);
        const Json tree = parse_side_file(text, side_name);
        if (tree.is_null()) continue;
        const JsonNode config(tree, side_name);
        const std::vector<std::int32_t> bos_ids = token_ids(config, "bos_token_id");
        const std::vector<std::int32_t> eos_ids = token_ids(config, "eos_token_id");
        if (!bos && !bos_ids.empty()) bos = bos_ids.front();
        if (!eos && !eos_ids.empty()) eos = eos_ids.front();
        ends.insert(ends.end(), eos_ids.begin(), eos_ids.end());
    }
    tokenizer.set_marks(bos, eos, std::move(ends));
}

} // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerFiles &files) {
    const std::string name = file_name(files.folder, "tokenizer.json");
    const Json tree = parse_untrusted_json(files.tokenizer_json, name);
    const JsonNode root(tree, name);
    if (!tree.is_object()) root.expected("an object, as Hugging Face tokenizers write it");
    std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer_json(root);
    read_marks(files, *tokenizer);
    return tokenizer;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path &folder) {
    std::error_code ignored;
    const fs::path home = fs::is_regular_file(folder, ignored) ? folder.parent_path() : folder;
    const std::string tokenizer = read_text_file(home / "tokenizer.json", true);
    const std::string tokenizer_config = read_text_file(home / "tokenizer_config.json", false);
    const std::string generation_config = read_text_file(home / "generation_config.json", false);
    const std::string config = read_text_file(home / "config.json", false);
    return parse_tokenizer({tokenizer, tokenizer_config, generation_config, config, home.string()});
}

} // namespace keel
