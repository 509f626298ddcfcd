#include "text/tokenizer/spm_bpe.hpp"

namespace keel {

namespace {

// SentencePiece writes hex digits in capitals.
int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

} // namespace

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
    const int high = hex_digit(piece[3]);
    const int low = hex_digit(piece[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<unsigned char>(high * 16 + low);
}

std::string text_of_piece(std::string_view piece) {
    std::string out;
    for (std::size_t at = 0; at < piece.size();) {
        if (piece.substr(at).starts_with(PreTokenizer::metaspace_mark)) {
            out += ' ';
            at += PreTokenizer::metaspace_mark.size();
        } else {
            out += piece[at++];
        }
    }
    return out;
}

void SpmBpe::encode_valid(const Input &input, std::vector<std::int32_t> &out) const {
    if (input.add_special) out = parts_.prefix;
    RegexScratch regex_scratch(input.text.size());
    MergeScratch merge_scratch;
    const AddedTokens::Cut cut = parts_.added.split(input.text, input.plain, input.continues,
                                                    parts_.normalizer, regex_scratch);
    for (const AddedTokens::Piece &piece : cut.pieces) {
        if (piece.id >= 0) {
            out.push_back(piece.id);
            continue;
        }
        parts_.pre_tokenizer.split(
            piece.text, {piece.at_start, input.continues}, regex_scratch,
            [&](std::string_view word) { parts_.bpe.encode(word, merge_scratch, out); });
    }
    if (input.add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
}

TokenizerInfo SpmBpe::info() const {
    TokenizerInfo info;
    info.kind = "SentencePiece BPE";
    info.source = parts_.source;
    info.merges = parts_.bpe.merge_count();
    parts_.pieces.count(info);
    return info;
}

} // namespace keel
