#pragma once

#include "base/json_reader.hpp"
#include "text/tokenizer/spm_bpe.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

// One reader for each form of tokenizer file. The files are not trusted. All readers throw
// Error(input).
namespace keel {

// Reads the tree of a tokenizer.json. The decoder in the file decides which kind of BPE it is.
// `root.where()` names the file.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const JsonNode &root);

// Reads a byte-level BPE. Supported:
//   model           BPE; merges as "a b" or ["a", "b"]; ignore_merges, unk_token, fuse_unk
//   normalizer      NFC, NFKC, Prepend, Replace, a Sequence of these, or none
//   pre_tokenizer   ByteLevel, or a Sequence of Split and Digits steps that ends in ByteLevel
//   post_processor  TemplateProcessing, ByteLevel, a Sequence of these, or none
//   decoder         ByteLevel
//   added_tokens    all five flags
// "truncation" and "padding" are settings of a batch. They do not change the tokens, so they are
// ignored.
std::unique_ptr<Tokenizer> parse_byte_level_bpe(const JsonNode &root);

// Reads a SentencePiece-style BPE, whose symbols are characters. Supports the same as
// parse_byte_level_bpe(), and also:
//   model           byte_fallback
//   pre_tokenizer   Split and Digits steps, then Metaspace; or any part of that, or none
//   decoder         Metaspace, or a Sequence of Replace, ByteFallback, Fuse and a Strip of one
//                   space at the left
std::unique_ptr<Tokenizer> parse_spm_bpe(const JsonNode &root);

// Reads the vocabulary of a tokenizer.model: SentencePiece's ModelProto of the type BPE, without
// its own normalization. Its pieces point into `bytes`.
SpmVocab parse_spm_model(std::string_view bytes, std::string name);

// Reads the vocabulary of a tokenizer.model from a model folder. Also reads the added tokens, the
// prefix and the suffix that the other files of the folder give. Sets `bytes` to the content of
// tokenizer.model; the pieces point into `bytes`.
SpmVocab load_spm_vocab(const std::filesystem::path &folder, std::string &bytes);

} // namespace keel
