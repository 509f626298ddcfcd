#pragma once

// Internal to core/model: the parts of export_gguf().

#include "format/gguf_writer.hpp"
#include "model/gguf_model.hpp"

#include <filesystem>

namespace keel::gguf {

// What GGUF calls the architecture of a folder's model. Throws Error(input) where the file could
// not say all that the folder does.
const ArchitectureName &checked_architecture(const ModelSource &source);

// "general.*" and the keys of the architecture, for a model from a folder whose matrices become
// `type`.
void add_model_metadata(const ModelSource &source, keel_dtype type, GgufWriter &out);

// "tokenizer.*" from the tokenizer.json of a folder, or its tokenizer.model, and the files beside
// it. Throws Error(input) that names what GGUF has no word for.
void add_tokenizer_metadata(const std::filesystem::path &folder, const ModelConfig &config,
                            GgufWriter &out);

// All keys of a GGUF file but those that a new file has values of its own for.
void copy_metadata(const GgufFile &from, keel_dtype type, GgufWriter &out);

} // namespace keel::gguf
