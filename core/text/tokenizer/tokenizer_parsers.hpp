#pragma once

#include "base/json_reader.hpp"
#include "text/tokenizer/spm_bpe.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

// One reader for each form in which files write a tokenizer. Nothing in the files is trusted; all
// throw Error (input).
namespace keel {

// From the tree of a tokenizer.json (`root.where()` names the file), by what its decoder says it
// is.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const JsonNode &root);

// Byte-level BPE. Understood:
//   model           BPE; merges as "a b" or ["a", "b"]; ignore_merges, unk_token, fuse_unk
//   normalizer      NFC, NFKC, Prepend, Replace, a Sequence of these, or none
//   pre_tokenizer   ByteLevel, or a Sequence of Split and Digits steps that ends in ByteLevel
//   post_processor  TemplateProcessing, ByteLevel, a Sequence of these, or none
//   decoder         ByteLevel
//   added_tokens    all five flags
// "truncation" and "padding" are settings of a batch, not of the text's tokens, and play no part
// here.
std::unique_ptr<Tokenizer> parse_byte_level_bpe(const JsonNode &root);

// SentencePiece-style BPE, whose symbols are characters. As above, and:
//   model           byte_fallback
//   pre_tokenizer   Split and Digits steps, then Metaspace; or any part of that, or none
//   decoder         Metaspace, or a Sequence of Replace, ByteFallback, Fuse and a Strip of one
//                   space at the left
std::unique_ptr<Tokenizer> parse_spm_bpe(const JsonNode &root);

// The vocabulary of a tokenizer.model: SentencePiece's ModelProto, of the type BPE, without a
// normalization of its own. Its pieces point into `bytes`.
SpmVocab parse_spm_model(std::string_view bytes, std::string name);

// The same from a model folder, with the added tokens, the prefix and the suffix that the files
// beside it name. Its pieces point into `bytes`, which becomes what tokenizer.model holds.
SpmVocab load_spm_vocab(const std::filesystem::path &folder, std::string &bytes);

} // namespace keel
