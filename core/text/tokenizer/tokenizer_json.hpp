#pragma once

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "text/tokenizer/added_tokens.hpp"
#include "text/tokenizer/bpe.hpp"
#include "text/tokenizer/piece_table.hpp"
#include "text/tokenizer/pre_tokenizer.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Readers for the components of a tokenizer.json that all kinds of BPE share. `root` is the whole
// tree. All functions throw Error(input) that names the file and the place, including errors for
// features that Keel does not support.
namespace keel {

// The member "type" of a component.
inline const std::string &type_of(const JsonNode &component) { return component.at("type").text(); }

// The highest id that Keel accepts, more than any real vocabulary has. The sizes of tables depend
// on the highest id.
constexpr std::int64_t max_token_id = (1 << 22) - 1;

// Maps each entry of the vocabulary, as it is in the file, to its id. The keys are views into the
// tree.
using TokenizerVocab = std::unordered_map<std::string_view, std::int32_t>;

TokenizerVocab read_vocab(const JsonNode &node);
void read_merges(const JsonNode &merges, const TokenizerVocab &vocab, MergeTable &table);
// Returns the id of model.unk_token, or nullopt if there is none.
std::optional<std::int32_t> read_unknown(const JsonNode &model, const TokenizerVocab &vocab);
// Throws if the model has options that no BPE in Keel supports: another type, dropout, affixes.
void refuse_model_options(const JsonNode &model);

std::vector<AddedToken> read_added_tokens(const JsonNode &root);
// Reads the flags of one added token in tokenizer.json or tokenizer_config.json. The caller sets
// the id.
AddedToken read_added_token_flags(const JsonNode &node);
// Reads the vocabulary and the added tokens into one table. A token can be in both, with the same
// id. `bytes_of` returns the bytes of a vocabulary entry.
PieceTable read_pieces(const JsonNode &root, const TokenizerVocab &vocab,
                       const std::vector<AddedToken> &added,
                       const std::function<std::string(std::string_view)> &bytes_of);

// Returns the steps of a component: one step, or the steps of a Sequence under `list_key`. There
// are at most 32.
std::vector<JsonNode> read_steps(const JsonNode &component, const char *list_key);
// Reads NFC, NFKC, Prepend, Replace of plain text, and Sequences of these.
TextNormalizer read_normalizer(const JsonNode &root);
// Reads a step of the pre-tokenizer, which must be a Split or Digits step. `known`: the other kinds
// of steps that this place of the file allows. The error message for an unknown step names these
// kinds.
void read_split_step(const JsonNode &node, std::string_view known, PreTokenizer &out);

// The tokens that the post-processor adds before and after a text.
struct TextFrame {
    std::vector<std::int32_t> prefix;
    std::vector<std::int32_t> suffix;
};
TextFrame read_post_processor(const JsonNode &root, const PieceTable &pieces);

} // namespace keel
