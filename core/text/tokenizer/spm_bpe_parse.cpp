// Makes an SpmBpe from a tokenizer.json. Also chooses between the kinds of tokenizer.json.
#include "text/tokenizer/spm_bpe.hpp"
#include "text/tokenizer/tokenizer_json.hpp"
#include "text/tokenizer/tokenizer_parsers.hpp"
#include "text/utf8.hpp"

namespace keel {

namespace {

constexpr std::string_view mark = PreTokenizer::metaspace_mark;

void read_metaspace(const JsonNode &node, PreTokenizer &out, bool &adds_space) {
    if (const auto text = node.find("replacement"); text && text->text() != mark)
        text->expected("U+2581, SentencePiece's mark for a space");
    MetaspacePrefix prefix = MetaspacePrefix::always;
    if (const auto scheme = node.find("prepend_scheme")) {
        if (scheme->text() == "never")
            prefix = MetaspacePrefix::never;
        else if (scheme->text() == "first")
            prefix = MetaspacePrefix::first;
        else if (scheme->text() != "always")
            scheme->expected("always, first or never");
    } else if (!node.flag_or("add_prefix_space",
                             true)) { // the older form of prepend_scheme
        prefix = MetaspacePrefix::never;
    }
    out.set_metaspace(prefix, node.flag_or("split", true));
    adds_space = prefix != MetaspacePrefix::never;
}

PreTokenizer read_pre_tokenizer(const JsonNode &root) {
    PreTokenizer out;
    const auto node = root.find("pre_tokenizer");
    if (!node) return out;
    const std::vector<JsonNode> steps = read_steps(*node, "pretokenizers");
    bool adds_space = false;
    for (std::size_t i = 0; i < steps.size(); ++i)
        if (type_of(steps[i]) == "Metaspace" && i + 1 == steps.size())
            read_metaspace(steps[i], out, adds_space);
        else
            read_split_step(steps[i], "Metaspace", out);
    return out;
}

void check_replace_step(const JsonNode &step) {
    const auto from = step.at("pattern").find("String");
    if (!from || from->text() != mark || step.at("content").text() != " ")
        step.fail("expected the replacement of U+2581 by a space");
}

// Reads a Strip step. Returns true if it removes one space at the left.
bool read_strip_step(const JsonNode &step) {
    if (step.at("content").text() != " ") step.at("content").expected("a space");
    if (step.at("stop").integer(0, INT32_MAX) != 0) step.at("stop").expected("0");
    return step.at("start").integer(0, 1) == 1;
}

// The changes that the decoder makes to pieces.
struct Decoding {
    bool bytes = false;         // true: a piece such as "<0x0A>" is a byte
    bool leading_space = false; // true: the first space is dropped
};

Decoding read_decoder(const JsonNode &root) {
    Decoding out;
    const JsonNode decoder = root.at("decoder");
    bool spaces = false;
    for (const JsonNode &step : read_steps(decoder, "decoders")) {
        const std::string &type = type_of(step);
        if (type == "Metaspace") {
            PreTokenizer unused;
            read_metaspace(step, unused, out.leading_space);
            spaces = true;
        } else if (type == "Replace") {
            check_replace_step(step);
            spaces = true;
        } else if (type == "ByteFallback") {
            out.bytes = true;
        } else if (type == "Strip") {
            out.leading_space = read_strip_step(step);
        } else if (type != "Fuse") { // Fuse joins pieces, as Keel always does
            step.at("type").fail(
                fmt::format("the decoder {} is not supported; Keel reads Metaspace, Replace, "
                            "ByteFallback, Fuse and Strip",
                            quote_text(type)));
        }
    }
    if (!spaces)
        decoder.fail("no step turns U+2581 into a space; this is not SentencePiece-style BPE");
    return out;
}

CharBpe read_model(const JsonNode &model, const TokenizerVocab &vocab) {
    CharBpe bpe;
    const bool fallback = model.flag_or("byte_fallback", false);
    const bool whole_words = model.flag_or("ignore_merges", false);
    for (const auto &[text, id] : vocab) {
        if (const auto byte = byte_of_piece(text); byte && fallback) bpe.set_byte(*byte, id);
        if (text.empty()) continue;
        if (utf8_length(text, 0) == text.size()) {
            std::size_t at = 0;
            bpe.set_character(next_code_point(text, at), id);
        }
        if (whole_words) bpe.add_whole_word(std::string(text), id);
    }
    if (const auto unknown = read_unknown(model, vocab))
        bpe.set_unknown(*unknown, model.flag_or("fuse_unk", false));
    read_merges(model.at("merges"), vocab, bpe.merges());
    return bpe;
}

// Returns true if a tokenizer.json has SentencePiece-style BPE. All other files are read as
// byte-level BPE. The reader of byte-level BPE gives the error messages for unsupported files.
bool is_spm(const JsonNode &root) {
    const auto decoder = root.find("decoder");
    if (!decoder) return root.at("model").flag_or("byte_fallback", false);
    for (const JsonNode &step : read_steps(*decoder, "decoders"))
        if (type_of(step) == "Metaspace" || type_of(step) == "ByteFallback" ||
            type_of(step) == "Replace")
            return true;
    return false;
}

} // namespace

std::unique_ptr<Tokenizer> parse_spm_bpe(const JsonNode &root) {
    const JsonNode model = root.at("model");
    refuse_model_options(model);
    const Decoding decoding = read_decoder(root);

    SpmBpe::Parts parts;
    parts.source = root.where();
    parts.adds_leading_space = decoding.leading_space;
    parts.normalizer = read_normalizer(root);
    parts.pre_tokenizer = read_pre_tokenizer(root);
    const TokenizerVocab vocab = read_vocab(model.at("vocab"));
    parts.bpe = read_model(model, vocab);
    std::vector<AddedToken> added = read_added_tokens(root);
    parts.pieces = read_pieces(root, vocab, added, [&](std::string_view entry) {
        const auto byte = byte_of_piece(entry);
        return byte && decoding.bytes ? std::string(1, static_cast<char>(*byte))
                                      : text_of_piece(entry);
    });
    for (AddedToken &token : added) token.pattern = parts.normalizer.apply(token.content);
    parts.added = AddedTokens(std::move(added));
    TextFrame frame = read_post_processor(root, parts.pieces);
    parts.prefix = std::move(frame.prefix);
    parts.suffix = std::move(frame.suffix);
    return std::make_unique<SpmBpe>(std::move(parts));
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(const JsonNode &root) {
    return is_spm(root) ? parse_spm_bpe(root) : parse_byte_level_bpe(root);
}

} // namespace keel
