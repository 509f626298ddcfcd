#include "text/tokenizer/byte_level_bpe.hpp"

namespace keel {

void ByteLevelBpe::encode_valid(const Input &input, std::vector<std::int32_t> &out) const {
    if (input.add_special) out = parts_.prefix;
    RegexScratch regex_scratch(input.text.size());
    MergeScratch bpe_scratch;
    const AddedTokens::Cut cut = parts_.added.split(input.text, input.plain, input.continues,
                                                    parts_.normalizer, regex_scratch);
    for (const AddedTokens::Piece &piece : cut.pieces) {
        if (piece.id >= 0) {
            out.push_back(piece.id);
            continue;
        }
        parts_.pre_tokenizer.split(
            piece.text, {piece.at_start, input.continues}, regex_scratch,
            [&](std::string_view word) { parts_.bpe.encode(word, bpe_scratch, out); });
    }
    if (input.add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
}

TokenizerInfo ByteLevelBpe::info() const {
    TokenizerInfo info;
    info.kind = "byte-level BPE";
    info.source = parts_.source;
    info.merges = parts_.bpe.merge_count();
    parts_.pieces.count(info);
    return info;
}

} // namespace keel
