#pragma once

// Internal to core/convert: the parts of export_gguf().

#include "format/gguf_writer.hpp"
#include "model/gguf_model.hpp"

#include <filesystem>

namespace keel::gguf {

// The GGUF name of the architecture of a folder's model. Throws Error(input) if a GGUF file cannot
// express a feature of the folder's model.
const ArchitectureName &checked_architecture(const ModelSource &source);

// Adds "general.*" and the keys of the architecture, for a model from a folder. Its matrices are
// written in the type `type`.
void add_model_metadata(const ModelSource &source, keel_dtype type, GgufWriter &out);

// Adds the keys "tokenizer.*". Reads them from tokenizer.json or tokenizer.model in `folder`, and
// from the other tokenizer files in this folder. Throws Error(input) that names what GGUF cannot
// express.
void add_tokenizer_metadata(const std::filesystem::path &folder, const ModelConfig &config,
                            GgufWriter &out);

// Copies all keys of a GGUF file except those that have new values in the new file.
void copy_metadata(const GgufFile &from, keel_dtype type, GgufWriter &out);

} // namespace keel::gguf
