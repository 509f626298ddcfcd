// Reads the vocabulary, the merges and the added tokens of a tokenizer.json.
#include "text/tokenizer/tokenizer_json.hpp"

#include <unordered_set>

namespace keel {

namespace {

std::int32_t token_id(const JsonNode &merges, std::size_t index, const TokenizerVocab &vocab,
                      std::string_view token) {
    const auto it = vocab.find(token);
    if (it == vocab.end())
        merges.element(index).fail(
            fmt::format("{} is not in model.vocab; the file is damaged", quote_text(token)));
    return it->second;
}

// Returns the two sides of a merge, which is written "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_sides(const JsonNode &merges,
                                                          std::size_t index) {
    const JsonNode rule = merges.element(index);
    if (rule.is_array() && rule.size() == 2 && rule.element(0).is_text() &&
        rule.element(1).is_text())
        return {rule.element(0).text(), rule.element(1).text()};
    if (rule.is_text()) {
        const std::string_view text = rule.text();
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
            return {text.substr(0, space), text.substr(space + 1)};
    }
    rule.expected("a merge, \"a b\" or [\"a\", \"b\"]");
}

} // namespace

TokenizerVocab read_vocab(const JsonNode &node) {
    if (!node.is_object()) node.expected("an object of tokens and their ids");
    const auto members = node.members();
    if (members.empty()) node.fail("the vocabulary is empty");
    TokenizerVocab vocab;
    vocab.reserve(members.size());
    std::unordered_map<std::int32_t, std::string_view> owner;
    owner.reserve(members.size());
    for (const auto &[token, value] : members) {
        const auto id = static_cast<std::int32_t>(value.integer(0, max_token_id));
        if (const auto [it, is_new] = owner.emplace(id, token); !is_new)
            node.fail(fmt::format("id {} is given to both {} and {}", id, quote_text(it->second),
                                  quote_text(token)));
        vocab.emplace(token, id);
    }
    return vocab;
}

void read_merges(const JsonNode &merges, const TokenizerVocab &vocab, MergeTable &table) {
    const std::size_t count = merges.size();
    table.reserve(count);
    std::string joined;
    for (std::size_t i = 0; i < count; ++i) {
        const auto [left, right] = merge_sides(merges, i);
        joined.assign(left);
        joined += right;
        const std::int32_t left_id = token_id(merges, i, vocab, left);
        const std::int32_t right_id = token_id(merges, i, vocab, right);
        table.add(left_id, right_id, static_cast<std::uint32_t>(i),
                  token_id(merges, i, vocab, joined));
    }
}

std::optional<std::int32_t> read_unknown(const JsonNode &model, const TokenizerVocab &vocab) {
    const auto unknown = model.find("unk_token");
    if (!unknown) return std::nullopt;
    const auto it = vocab.find(unknown->text());
    if (it == vocab.end())
        unknown->fail(fmt::format("{} is not in model.vocab", quote_text(unknown->text())));
    return it->second;
}

void refuse_model_options(const JsonNode &model) {
    if (type_of(model) != "BPE")
        model.at("type").fail(
            fmt::format("the model type {} is not supported; Keel reads BPE, byte-level or "
                        "SentencePiece-style",
                        quote_text(type_of(model))));
    if (const auto dropout = model.find("dropout");
        dropout && !(dropout->is_number() && dropout->number() == 0))
        dropout->fail("dropout would make tokens random; expected null or 0");
    for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto affix = model.find(key); affix && !affix->text().empty())
            affix->fail("not supported; expected null");
}

AddedToken read_added_token_flags(const JsonNode &node) {
    AddedToken token;
    const JsonNode content = node.at("content");
    token.content = content.text();
    if (token.content.empty() || token.content.size() > AddedTokens::max_content_bytes)
        content.fail(fmt::format("an added token must have 1 to {} bytes, found {}",
                                 AddedTokens::max_content_bytes, token.content.size()));
    token.special = node.flag_or("special", false);
    token.single_word = node.flag_or("single_word", false);
    token.lstrip = node.flag_or("lstrip", false);
    token.rstrip = node.flag_or("rstrip", false);
    token.normalized = node.flag_or("normalized", !token.special);
    return token;
}

std::vector<AddedToken> read_added_tokens(const JsonNode &root) {
    std::vector<AddedToken> tokens;
    const auto list = root.find("added_tokens");
    if (!list) return tokens;
    std::unordered_set<std::string> contents;
    for (std::size_t i = 0; i < list->size(); ++i) {
        const JsonNode node = list->element(i);
        tokens.push_back(read_added_token_flags(node));
        tokens.back().id = static_cast<std::int32_t>(node.at("id").integer(0, max_token_id));
        if (!contents.insert(tokens.back().content).second)
            node.fail(fmt::format("token {} is added twice", quote_text(tokens.back().content)));
    }
    return tokens;
}

PieceTable read_pieces(const JsonNode &root, const TokenizerVocab &vocab,
                       const std::vector<AddedToken> &added,
                       const std::function<std::string(std::string_view)> &bytes_of) {
    std::vector<PieceTable::Entry> entries;
    entries.reserve(vocab.size() + added.size());
    std::unordered_map<std::int32_t, std::string_view> taken;
    for (const AddedToken &token : added) {
        const auto own = vocab.find(token.content);
        if (own != vocab.end() && own->second != token.id)
            root.at("added_tokens")
                .fail(fmt::format("token {} has id {} here and {} in model.vocab",
                                  quote_text(token.content), token.id, own->second));
        if (const auto [it, is_new] = taken.emplace(token.id, token.content); !is_new)
            root.at("added_tokens")
                .fail(fmt::format("id {} is given to both {} and {}", token.id,
                                  quote_text(it->second), quote_text(token.content)));
        entries.push_back(
            {token.id, token.content, token.special ? TokenKind::special : TokenKind::added});
    }
    for (const auto &[symbols, id] : vocab) {
        const auto it = taken.find(id);
        if (it == taken.end())
            entries.push_back({id, bytes_of(symbols), TokenKind::ordinary});
        else if (it->second != symbols)
            root.at("added_tokens")
                .fail(fmt::format(
                    "token {} has the id {}, which already belongs to {} in model.vocab",
                    quote_text(it->second), id, quote_text(symbols)));
    }
    PieceTable table;
    table.assign(std::move(entries));
    return table;
}

} // namespace keel
