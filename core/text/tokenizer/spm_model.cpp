// Makes an SpmBpe from a tokenizer.model.
//
// The file is SentencePiece's ModelProto. This code reads it field by field, without
// libsentencepiece, because libsentencepiece (0.1.97, as in Debian) trusts its input. It reads the
// double-array trie in precompiled_charsmap without bounds checks, so a malicious trie ends the
// program with a segmentation fault. If a check in libsentencepiece fails, it prints a message and
// calls exit(). GGUF vocabularies need the same merges as this file. Tests compare the ids with
// those of libsentencepiece.
#include "base/display.hpp"
#include "base/error.hpp"
#include "text/tokenizer/protobuf.hpp"
#include "text/tokenizer/spm_bpe.hpp"
#include "text/tokenizer/tokenizer_parsers.hpp"

#include <array>

namespace keel {

namespace {

struct Spec {
    std::uint64_t model_type = 1; // the format's default
    bool byte_fallback = false;
    bool space_as_suffix = false;
    bool add_dummy_prefix = true;
    bool remove_extra_spaces = true;
    bool escape_spaces = true;
    std::string_view rule_name;
    bool has_charsmap = false;
    std::int64_t bos = 1; // defaults of the format; -1: no token
    std::int64_t eos = 2;
};

SpmVocab::Piece read_piece(ProtobufReader message, std::size_t index) {
    SpmVocab::Piece piece;
    while (message.next()) {
        if (message.field() == 1) piece.text = message.bytes();
        if (message.field() == 2) piece.score = message.number();
        if (message.field() == 3) {
            if (message.integer() < 1 || message.integer() > 6)
                message.fail(
                    fmt::format("piece {} has the unknown type {}", index, message.integer()));
            piece.type = static_cast<SpmVocab::Type>(message.integer());
        }
    }
    return piece;
}

void read_trainer_spec(ProtobufReader message, Spec &spec) {
    while (message.next()) {
        if (message.field() == 3) spec.model_type = message.integer();
        if (message.field() == 24) spec.space_as_suffix = message.flag();
        if (message.field() == 35) spec.byte_fallback = message.flag();
        if (message.field() == 41) spec.bos = static_cast<std::int32_t>(message.integer());
        if (message.field() == 42) spec.eos = static_cast<std::int32_t>(message.integer());
    }
}

void read_normalizer_spec(ProtobufReader message, Spec &spec) {
    while (message.next()) {
        if (message.field() == 1) spec.rule_name = message.bytes();
        if (message.field() == 2) spec.has_charsmap = !message.bytes().empty();
        if (message.field() == 3) spec.add_dummy_prefix = message.flag();
        if (message.field() == 4) spec.remove_extra_spaces = message.flag();
        if (message.field() == 5) spec.escape_spaces = message.flag();
    }
}

void check_spec(const Spec &spec, const ProtobufReader &file) {
    constexpr std::array<std::string_view, 5> types{"", "Unigram", "BPE", "word", "character"};
    if (spec.model_type != 2)
        file.fail(
            fmt::format("a SentencePiece model of the type {} is not supported; Keel reads BPE",
                        spec.model_type < types.size() ? types[spec.model_type] : "unknown"));
    if (spec.has_charsmap)
        file.fail(fmt::format(
            "the normalization {} is not supported; Keel reads SentencePiece models that leave "
            "characters alone (identity)",
            quote_text(spec.rule_name)));
    if (spec.space_as_suffix) file.fail("treat_whitespace_as_suffix is not supported");
    if (!spec.escape_spaces)
        file.fail("a model that does not write spaces as U+2581 is not supported");
}

// Returns the id of a special token, or nullopt if the model has another kind of piece at this id.
std::optional<std::int32_t> control_piece(const SpmVocab &vocab, std::int64_t id) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocab.pieces.size()) return std::nullopt;
    if (vocab.pieces[static_cast<std::size_t>(id)].type != SpmVocab::Type::control)
        return std::nullopt;
    return static_cast<std::int32_t>(id);
}

} // namespace

SpmVocab parse_spm_model(std::string_view bytes, std::string name) {
    SpmVocab vocab;
    vocab.source = name;
    Spec spec;
    ProtobufReader file(bytes, std::move(name));
    while (file.next()) {
        if (file.field() == 1) {
            if (vocab.pieces.size() >= SpmVocab::max_pieces)
                file.fail(
                    fmt::format("expected at most {} pieces, found more", SpmVocab::max_pieces));
            vocab.pieces.push_back(read_piece({file.bytes(), vocab.source}, vocab.pieces.size()));
        } else if (file.field() == 2) {
            read_trainer_spec({file.bytes(), vocab.source}, spec);
        } else if (file.field() == 3) {
            read_normalizer_spec({file.bytes(), vocab.source}, spec);
        }
    }
    if (vocab.pieces.empty()) file.fail("there are no pieces; this is not a SentencePiece model");
    check_spec(spec, file);
    vocab.byte_fallback = spec.byte_fallback;
    vocab.prefix_space = spec.add_dummy_prefix;
    vocab.collapse_spaces = spec.remove_extra_spaces;
    vocab.user_defined_apart = false;
    vocab.bos = control_piece(vocab, spec.bos);
    vocab.eos = control_piece(vocab, spec.eos);
    return vocab;
}

} // namespace keel
