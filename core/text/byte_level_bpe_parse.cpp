// tokenizer.json -> ByteLevelBpe.
#include "text/byte_level_bpe.hpp"

#include "text/utf8.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace keel {

namespace {

// Far beyond any real vocabulary; tables are sized by the highest id.
constexpr std::int64_t max_id = (1 << 22) - 1;
constexpr std::size_t max_template_tokens = 64;
constexpr std::size_t max_steps = 32; // pre-tokenizers; DeepSeek has the most, 5

// Vocabulary entries as written in the file (in GPT-2's alphabet) -> id.
using Vocab = std::unordered_map<std::string_view, std::int32_t>;

Vocab read_vocab(const JsonNode &node) {
    if (!node.raw().is_object()) node.expected("an object of tokens and their ids");
    if (node.raw().empty()) node.fail("the vocabulary is empty");
    Vocab vocab;
    vocab.reserve(node.raw().size());
    std::unordered_map<std::int32_t, std::string_view> owner;
    owner.reserve(node.raw().size());
    for (const auto &[token, value] : node.raw().items()) {
        // number() by hand: a place for each of 100,000 entries would cost more than the entries
        if (!value.is_number_integer() || value < 0 || value > max_id)
            node.fail(fmt::format(
                "the id of token {} must be an integer from 0 to {}, found {}", quote_text(token), max_id,
                quote_text(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))));
        const auto id = value.get<std::int32_t>();
        if (const auto [it, is_new] = owner.emplace(id, token); !is_new)
            node.fail(fmt::format("id {} is given to both {} and {}", id, quote_text(it->second),
                                  quote_text(token)));
        vocab.emplace(token, id);
    }
    return vocab;
}

std::int32_t token_id(const JsonNode &merges, std::size_t index, const Vocab &vocab, std::string_view token) {
    const auto it = vocab.find(token);
    if (it == vocab.end())
        merges.element(index).fail(
            fmt::format("{} is not in model.vocab; the file is damaged", quote_text(token)));
    return it->second;
}

// The two sides of a merge, written "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_sides(const JsonNode &merges, std::size_t index) {
    const nlohmann::json &rule = merges.raw()[index];
    if (rule.is_array() && rule.size() == 2 && rule[0].is_string() && rule[1].is_string())
        return {rule[0].get_ref<const std::string &>(), rule[1].get_ref<const std::string &>()};
    if (rule.is_string()) {
        const std::string_view text = rule.get_ref<const std::string &>();
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
            return {text.substr(0, space), text.substr(space + 1)};
    }
    merges.element(index).expected("a merge, \"a b\" or [\"a\", \"b\"]");
}

void read_merges(const JsonNode &merges, const Vocab &vocab, Bpe &bpe) {
    const std::size_t count = merges.array_size();
    bpe.reserve_merges(count);
    std::string joined;
    for (std::size_t i = 0; i < count; ++i) {
        const auto [left, right] = merge_sides(merges, i);
        joined.assign(left);
        joined += right;
        const std::int32_t left_id = token_id(merges, i, vocab, left);
        const std::int32_t right_id = token_id(merges, i, vocab, right);
        bpe.add_merge(left_id, right_id, static_cast<std::uint32_t>(i), token_id(merges, i, vocab, joined));
    }
}

void refuse_model_options(const JsonNode &model) {
    if (model.type() != "BPE")
        model.at("type").fail(
            fmt::format("the model type {} is not supported; Keel reads byte-level BPE (\"BPE\")",
                        quote_text(model.type())));
    if (const auto dropout = model.find("dropout");
        dropout && !(dropout->raw().is_number() && dropout->raw() == 0))
        dropout->fail("dropout would make tokens random; expected null or 0");
    for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto affix = model.find(key); affix && !affix->text().empty())
            affix->fail("not supported with byte-level BPE; expected null");
    if (model.flag_or("byte_fallback", false))
        model.at("byte_fallback")
            .fail("this is a SentencePiece-style model, which Keel does not read yet; byte-level BPE is "
                  "supported");
}

Bpe read_model(const JsonNode &model, const Vocab &vocab) {
    Bpe bpe;
    for (unsigned b = 0; b < 256; ++b) {
        const auto it = vocab.find(symbol_of_byte(static_cast<unsigned char>(b)));
        if (it != vocab.end()) bpe.set_byte(static_cast<unsigned char>(b), it->second);
    }
    if (const auto unknown = model.find("unk_token")) {
        const auto it = vocab.find(unknown->text());
        if (it == vocab.end())
            unknown->fail(fmt::format("{} is not in model.vocab", quote_text(unknown->text())));
        bpe.set_unknown(it->second, model.flag_or("fuse_unk", false));
    } else if (bpe.missing_bytes() == 256) {
        model.at("vocab").fail("no single byte is in the vocabulary: this is not byte-level BPE");
    }
    read_merges(model.at("merges"), vocab, bpe);
    if (model.flag_or("ignore_merges", false))
        for (const auto &[symbols, id] : vocab)
            if (auto bytes = bytes_of_symbols(symbols)) bpe.add_whole_word(std::move(*bytes), id);
    return bpe;
}

// The whole text of words: GPT-2's alphabet where an entry is written in it, else as it stands.
std::string piece_bytes(std::string_view entry) {
    auto bytes = bytes_of_symbols(entry);
    return bytes ? std::move(*bytes) : std::string(entry);
}

AddedToken read_added_token(const JsonNode &node) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(node.at("id").integer(0, max_id));
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
    for (std::size_t i = 0; i < list->array_size(); ++i) {
        const JsonNode node = list->element(i);
        tokens.push_back(read_added_token(node));
        if (!contents.insert(tokens.back().content).second)
            node.fail(fmt::format("token {} is added twice", quote_text(tokens.back().content)));
    }
    return tokens;
}

// The vocabulary and the added tokens in one table. A token may be in both, with one id.
PieceTable read_pieces(const JsonNode &root, const Vocab &vocab, const std::vector<AddedToken> &added) {
    std::vector<PieceTable::Entry> entries;
    entries.reserve(vocab.size() + added.size());
    std::unordered_map<std::int32_t, std::string_view> taken;
    for (const AddedToken &token : added) {
        const auto own = vocab.find(token.content);
        if (own != vocab.end() && own->second != token.id)
            root.at("added_tokens")
                .fail(fmt::format("token {} has id {} here and {} in model.vocab", quote_text(token.content),
                                  token.id, own->second));
        if (const auto [it, is_new] = taken.emplace(token.id, token.content); !is_new)
            root.at("added_tokens")
                .fail(fmt::format("id {} is given to both {} and {}", token.id, quote_text(it->second),
                                  quote_text(token.content)));
        entries.push_back({token.id, token.content, token.special ? TokenKind::special : TokenKind::added});
    }
    for (const auto &[symbols, id] : vocab) {
        const auto it = taken.find(id);
        if (it == taken.end())
            entries.push_back({id, piece_bytes(symbols), TokenKind::ordinary});
        else if (it->second != symbols)
            root.at("added_tokens")
                .fail(fmt::format("token {} takes id {}, which model.vocab gives to {}",
                                  quote_text(it->second), id, quote_text(symbols)));
    }
    PieceTable table;
    table.assign(std::move(entries));
    return table;
}

SplitBehavior read_behavior(const JsonNode &node) {
    const std::string &name = node.text();
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    node.expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitRegex read_pattern(const JsonNode &node) {
    if (const auto regex = node.find("Regex"))
        return {regex->text(), SplitRegex::Syntax::regex, regex->where()};
    if (const auto literal = node.find("String"))
        return {literal->text(), SplitRegex::Syntax::literal, literal->where()};
    node.fail("expected {\"Regex\": ...} or {\"String\": ...}");
}

// One step before ByteLevel.
void read_split_step(const JsonNode &node, PreTokenizer &out) {
    if (node.type() == "Split") {
        out.add_split(read_pattern(node.at("pattern")), read_behavior(node.at("behavior")),
                      node.flag_or("invert", false));
    } else if (node.type() == "Digits") {
        const bool alone = node.flag_or("individual_digits", false);
        out.add_split(SplitRegex("\\p{N}", SplitRegex::Syntax::regex, node.where()),
                      alone ? SplitBehavior::isolated : SplitBehavior::contiguous, false);
    } else {
        node.at("type").fail(
            fmt::format("the pre-tokenizer {} is not supported; Keel reads Split, Digits and, at the end, "
                        "ByteLevel",
                        quote_text(node.type())));
    }
}

PreTokenizer read_pre_tokenizer(const JsonNode &root) {
    const auto node = root.find("pre_tokenizer");
    if (!node) root.fail("'pre_tokenizer' is missing: without ByteLevel there this is not byte-level BPE");
    std::vector<JsonNode> steps{*node};
    if (node->type() == "Sequence") {
        steps.clear();
        const JsonNode list = node->at("pretokenizers");
        for (std::size_t i = 0; i < list.array_size(); ++i)
            steps.push_back(list.element(i));
        if (steps.empty()) list.fail("the list is empty; expected steps that end in ByteLevel");
        if (steps.size() > max_steps) list.fail(fmt::format("more than {} steps", max_steps));
    }
    PreTokenizer out;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i)
        read_split_step(steps[i], out);
    const JsonNode &last = steps.back();
    if (last.type() != "ByteLevel")
        last.at("type").fail(
            fmt::format("the last pre-tokenizer is {}; Keel reads byte-level BPE, where it is ByteLevel",
                        quote_text(last.type())));
    out.set_byte_level(last.flag_or("add_prefix_space", true), last.flag_or("use_regex", true));
    return out;
}

void read_template(const JsonNode &node, const PieceTable &pieces, ByteLevelBpe::Parts &parts) {
    const JsonNode single = node.at("single");
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> after;
    bool text_seen = false;
    for (std::size_t i = 0; i < single.array_size(); ++i) {
        const JsonNode item = single.element(i);
        if (const auto sequence = item.find("Sequence")) {
            if (text_seen || sequence->at("id").text() != "A")
                sequence->fail("a template for one text must hold sequence A once and no other");
            text_seen = true;
            continue;
        }
        const std::string &name = item.at("SpecialToken").at("id").text();
        const JsonNode ids = node.at("special_tokens").at(name.c_str()).at("ids");
        for (std::size_t k = 0; k < ids.array_size(); ++k) {
            const auto id = static_cast<std::int32_t>(ids.element(k).integer(0, max_id));
            if (pieces.kind(id) == TokenKind::unused)
                ids.element(k).fail(fmt::format("no token has the id {}", id));
            (text_seen ? after : before).push_back(id);
        }
    }
    if (!text_seen) single.fail("the template does not hold the text (sequence A)");
    if (parts.prefix.size() + before.size() > max_template_tokens ||
        parts.suffix.size() + after.size() > max_template_tokens)
        single.fail(fmt::format("more than {} special tokens round a text", max_template_tokens));
    // a later template encloses what an earlier one made
    parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
    parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonNode &node, const PieceTable &pieces, ByteLevelBpe::Parts &parts) {
    const std::string &type = node.type();
    if (type == "ByteLevel") return; // moves offsets only, which Keel does not report
    if (type == "TemplateProcessing") return read_template(node, pieces, parts);
    if (type != "Sequence")
        node.at("type").fail(fmt::format(
            "the post-processor {} is not supported; Keel reads TemplateProcessing, ByteLevel and Sequence",
            quote_text(type)));
    const JsonNode list = node.at("processors");
    if (list.array_size() > 16) list.fail("more than 16 post-processors");
    for (std::size_t i = 0; i < list.array_size(); ++i)
        read_post_processor(list.element(i), pieces, parts);
}

void check_decoder(const JsonNode &root) {
    const auto decoder = root.find("decoder");
    if (!decoder) root.fail("'decoder' is missing; byte-level BPE has the decoder ByteLevel");
    std::vector<JsonNode> steps{*decoder};
    if (decoder->type() == "Sequence") {
        steps.clear();
        const JsonNode list = decoder->at("decoders");
        for (std::size_t i = 0; i < list.array_size(); ++i)
            steps.push_back(list.element(i));
    }
    if (steps.size() != 1 || steps.front().type() != "ByteLevel")
        decoder->fail("only the decoder ByteLevel is supported; Keel reads byte-level BPE");
}

} // namespace

std::unique_ptr<ByteLevelBpe> parse_byte_level_bpe(const JsonNode &root) {
    const JsonNode model = root.at("model");
    refuse_model_options(model);
    if (const auto normalizer = root.find("normalizer"))
        normalizer->fail(fmt::format("the normalizer {} is not supported; Keel reads tokenizers without one",
                                     quote_text(normalizer->type())));
    check_decoder(root);

    ByteLevelBpe::Parts parts;
    parts.source = root.where();
    parts.pre_tokenizer = read_pre_tokenizer(root);
    const Vocab vocab = read_vocab(model.at("vocab"));
    parts.bpe = read_model(model, vocab);
    std::vector<AddedToken> added = read_added_tokens(root);
    parts.pieces = read_pieces(root, vocab, added);
    parts.added = AddedTokens(std::move(added));
    if (const auto post = root.find("post_processor")) read_post_processor(*post, parts.pieces, parts);
    return std::make_unique<ByteLevelBpe>(std::move(parts));
}

} // namespace keel
