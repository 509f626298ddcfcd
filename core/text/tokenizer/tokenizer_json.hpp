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

// The components of a tokenizer.json that all kinds of BPE share. `root` is the whole tree. All
// throw Error (input) that names the file and the place; what is not understood is refused by name.
namespace keel {

// The member "type" of a component.
inline const std::string &type_of(const JsonNode &component) { return component.at("type").text(); }

// Far beyond any real vocabulary; tables are sized by the highest id.
constexpr std::int64_t max_token_id = (1 << 22) - 1;

// Vocabulary entries as written in the file -> id; views into the tree.
using TokenizerVocab = std::unordered_map<std::string_view, std::int32_t>;

TokenizerVocab read_vocab(const JsonNode &node);
void read_merges(const JsonNode &merges, const TokenizerVocab &vocab, MergeTable &table);
// The id of model.unk_token; nullopt if there is none.
std::optional<std::int32_t> read_unknown(const JsonNode &model, const TokenizerVocab &vocab);
// Refuses what no BPE here does: another type, dropout, affixes.
void refuse_model_options(const JsonNode &model);

std::vector<AddedToken> read_added_tokens(const JsonNode &root);
// The flags of one added token, as tokenizer.json and tokenizer_config.json have them; the id is
// set by the caller.
AddedToken read_added_token_flags(const JsonNode &node);
// The vocabulary and the added tokens in one table. A token may be in both, with one id. bytes_of:
// what an entry of the vocabulary stands for.
PieceTable read_pieces(const JsonNode &root, const TokenizerVocab &vocab,
                       const std::vector<AddedToken> &added,
                       const std::function<std::string(std::string_view)> &bytes_of);

// The steps of a component that may be one step or a Sequence of them under `list_key`; at most 32.
std::vector<JsonNode> read_steps(const JsonNode &component, const char *list_key);
// NFC, NFKC, Prepend, Replace of plain text, and Sequences of these.
TextNormalizer read_normalizer(const JsonNode &root);
// A Split or Digits step. known: what else may stand there, for the message.
void read_split_step(const JsonNode &node, std::string_view known, PreTokenizer &out);

// What the post-processor puts round a text.
struct TextFrame {
    std::vector<std::int32_t> prefix;
    std::vector<std::int32_t> suffix;
};
TextFrame read_post_processor(const JsonNode &root, const PieceTable &pieces);

} // namespace keel
