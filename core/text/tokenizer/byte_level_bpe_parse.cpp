// Makes a ByteLevelBpe from a tokenizer.json.
#include "text/tokenizer/tokenizer_parsers.hpp"

#include "text/tokenizer/byte_level_bpe.hpp"
#include "text/tokenizer/tokenizer_json.hpp"

namespace keel {

namespace {

Bpe read_model(const JsonNode &model, const TokenizerVocab &vocab) {
    Bpe bpe;
    for (unsigned b = 0; b < 256; ++b) {
        const auto it = vocab.find(symbol_of_byte(static_cast<unsigned char>(b)));
        if (it != vocab.end()) bpe.set_byte(static_cast<unsigned char>(b), it->second);
    }
    if (const auto unknown = read_unknown(model, vocab)) {
        bpe.set_unknown(*unknown, model.flag_or("fuse_unk", false));
    } else if (bpe.missing_bytes() == 256) {
        model.at("vocab").fail(
            "the vocabulary has no token for a single byte, so this is not byte-level BPE");
    }
    read_merges(model.at("merges"), vocab, bpe.merges());
    if (model.flag_or("ignore_merges", false))
        for (const auto &[symbols, id] : vocab)
            if (auto bytes = bytes_of_symbols(symbols)) bpe.add_whole_word(std::move(*bytes), id);
    return bpe;
}

// Returns the bytes of a vocabulary entry, decoded from GPT-2's alphabet. If an entry has a
// character outside of the alphabet, its text is used unchanged.
std::string piece_bytes(std::string_view entry) {
    auto bytes = bytes_of_symbols(entry);
    return bytes ? std::move(*bytes) : std::string(entry);
}

PreTokenizer read_pre_tokenizer(const JsonNode &root) {
    const auto node = root.find("pre_tokenizer");
    if (!node)
        root.fail("'pre_tokenizer' is missing; byte-level BPE needs the pre-tokenizer ByteLevel");
    const std::vector<JsonNode> steps = read_steps(*node, "pretokenizers");
    if (steps.empty()) node->fail("the list is empty; expected steps that end in ByteLevel");
    PreTokenizer out;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) read_split_step(steps[i], "ByteLevel", out);
    const JsonNode &last = steps.back();
    if (type_of(last) != "ByteLevel")
        last.at("type").fail(fmt::format(
            "the last pre-tokenizer is {}; expected ByteLevel, because Keel reads byte-level BPE",
            quote_text(type_of(last))));
    out.set_byte_level(last.flag_or("add_prefix_space", true), last.flag_or("use_regex", true));
    return out;
}

void check_decoder(const JsonNode &root) {
    const auto decoder = root.find("decoder");
    if (!decoder) root.fail("'decoder' is missing; byte-level BPE has the decoder ByteLevel");
    const std::vector<JsonNode> steps = read_steps(*decoder, "decoders");
    if (steps.size() != 1 || type_of(steps.front()) != "ByteLevel")
        decoder->fail("only the decoder ByteLevel is supported; Keel reads byte-level BPE");
}

} // namespace

std::unique_ptr<Tokenizer> parse_byte_level_bpe(const JsonNode &root) {
    const JsonNode model = root.at("model");
    refuse_model_options(model);
    if (model.flag_or("byte_fallback", false))
        model.at("byte_fallback")
            .fail("expected false; SentencePiece's byte fallback cannot be combined with the "
                  "decoder ByteLevel, for which every byte is a token");
    check_decoder(root);

    ByteLevelBpe::Parts parts;
    parts.source = root.where();
    parts.pre_tokenizer = read_pre_tokenizer(root);
    const TokenizerVocab vocab = read_vocab(model.at("vocab"));
    parts.bpe = read_model(model, vocab);
    parts.normalizer = read_normalizer(root);
    std::vector<AddedToken> added = read_added_tokens(root);
    parts.pieces = read_pieces(root, vocab, added, &piece_bytes);
    for (AddedToken &token : added) token.pattern = parts.normalizer.apply(token.content);
    parts.added = AddedTokens(std::move(added));
    TextFrame frame = read_post_processor(root, parts.pieces);
    parts.prefix = std::move(frame.prefix);
    parts.suffix = std::move(frame.suffix);
    return std::make_unique<ByteLevelBpe>(std::move(parts));
}

} // namespace keel
