// Finds the files of a model in a Hugging Face folder.

#include "base/display.hpp"
#include "base/error.hpp"
#include "model/expert_tensors.hpp"
#include "model/gguf_model.hpp"
#include "model/source.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

void check_is_folder(const fs::path &path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
        const std::string why = status.type() == fs::file_type::not_found
                                    ? "No such file or directory"
                                    : error.message();
        throw_error(ErrorKind::input,
                    "{}: cannot open: {}; give the folder of a model, or a GGUF file",
                    path.string(), why);
    }
    if (fs::is_directory(status)) return;
    throw_error(ErrorKind::input,
                "{}: expected the folder of a model or a GGUF file, found another file; give the "
                "folder that "
                "holds it, '{}'",
                path.string(), path.has_parent_path() ? path.parent_path().string() : ".");
}

bool has_file(const fs::path &path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

// Names files of the folder that the user may have meant in place of the missing file. Many of
// these errors come from a wrong format or folder.
std::string look_alike(const fs::path &folder) {
    std::error_code ignored;
    std::string bin;
    std::string gguf;
    std::string stray;
    for (const auto &entry : fs::directory_iterator(folder, ignored)) {
        const fs::path &file = entry.path();
        const std::string extension = file.extension().string();
        if (extension == ".bin" || extension == ".pt" || extension == ".pth")
            bin = file.filename().string();
        if (extension == ".gguf") gguf = file.filename().string();
        if (extension == ".safetensors") stray = file.filename().string();
    }
    if (!stray.empty()) {
        return fmt::format("; the folder has '{}', but a model in several files needs "
                           "model.safetensors.index.json, and a model in one file must have the "
                           "name model.safetensors",
                           printable(stray));
    }
    if (!bin.empty()) {
        return fmt::format("; the folder has '{}', but Keel does not read PyTorch's pickled "
                           "weights, because they can run code; convert them to safetensors",
                           printable(bin));
    }
    if (!gguf.empty())
        return fmt::format("; the folder has '{}': give the path of this file", printable(gguf));
    return "; is the download complete?";
}

// The hint for a folder without config.json.
std::string gguf_beside(const fs::path &folder) {
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(folder, ignored)) {
        if (entry.path().extension() == ".gguf")
            return fmt::format("; the folder has '{}': give the path of this file",
                               printable(entry.path().filename().string()));
    }
    return "; is this the right folder?";
}

// Adds the only file of an unsharded model.
void add_single(const fs::path &path, ModelSource::Parts &parts) {
    const SafetensorsFile file(path);
    parts.files.push_back(file.shared_file());
    parts.tensors = file.tensors();
}

// Adds all shards of an index.
void add_shards(const fs::path &folder, const std::string &index_name, const ShardIndex &index,
                ModelSource::Parts &parts) {
    for (uint32_t i = 0; i < index.files.size(); ++i) {
        const fs::path path = folder / index.files[i];
        if (!has_file(path)) {
            throw_error(ErrorKind::input,
                        "{}: the shard is missing, but {} lists it; is the download complete?",
                        path.string(), index_name);
        }
        const SafetensorsFile file(path);
        parts.files.push_back(file.shared_file());
        for (TensorInfo tensor : file.tensors()) {
            tensor.file = i;
            parts.tensors.push_back(std::move(tensor));
        }
    }
}

// Checks that the index and the shards' headers list the same tensors.
void check_index(const std::string &name, const ShardIndex &index, const ModelSource &source) {
    for (const auto &[tensor, file] : index.tensors) {
        const TensorInfo *found = source.find(tensor);
        if (found == nullptr || found->file != file) {
            throw_error(ErrorKind::input, "{}: tensor '{}' should be in '{}', but is {}", name,
                        printable(tensor), printable(index.files[file]),
                        found == nullptr ? "in none of the shards"
                                         : fmt::format("in {}", source.file(*found).path()));
        }
    }
    if (index.tensors.size() == source.tensors().size()) return;
    for (const TensorInfo &tensor : source.tensors()) {
        const auto at = std::lower_bound(
            index.tensors.begin(), index.tensors.end(), tensor.name,
            [](const auto &entry, const std::string &key) { return entry.first < key; });
        if (at == index.tensors.end() || at->first != tensor.name) {
            throw_error(ErrorKind::input, "{}: tensor '{}' is not listed in {}",
                        source.file(tensor).path(), printable(tensor.name), name);
        }
    }
}

// Makes the source. Each matrix of an expert becomes a tensor of its own.
std::shared_ptr<const ModelSource> with_experts(ModelSource::Parts parts) {
    parts.tensors = split_experts(std::move(parts.tensors), parts.config, parts.config_name,
                                  [&](const TensorInfo &t) { return parts.files[t.file]->path(); });
    return std::make_shared<const ModelSource>(std::move(parts));
}

} // namespace

std::shared_ptr<const ModelSource> open_model_source(const fs::path &path) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored) && (path.extension() == ".gguf" || is_gguf_file(path)))
        return gguf::open_source(path);
    check_is_folder(path);
    ModelSource::Parts parts;
    parts.path = path.string();
    if (!has_file(path / "config.json")) {
        throw_error(ErrorKind::input,
                    "{}: expected a Hugging Face model folder, but config.json is missing{}",
                    path.string(),
                    has_file(path / "params.json")
                        ? "; this is Meta's original format: take the '-hf' version"
                        : gguf_beside(path));
    }
    parts.config = load_model_config(path);
    const fs::path single = path / "model.safetensors";
    const fs::path index = path / "model.safetensors.index.json";
    if (has_file(single)) {
        add_single(single, parts);
        return with_experts(std::move(parts));
    }
    if (!has_file(index)) {
        throw_error(ErrorKind::input, "{}: model.safetensors is missing{}", path.string(),
                    look_alike(path));
    }
    const ShardIndex shards =
        parse_shard_index(read_text_file(index, max_shard_index_bytes), index.string());
    add_shards(path, index.string(), shards, parts);
    check_index(index.string(), shards, ModelSource(parts));
    return with_experts(std::move(parts));
}

} // namespace keel
