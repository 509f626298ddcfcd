#include "config/target.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "config/codec.hpp"
#include "format/gguf.hpp"

#include <system_error>

namespace keel::pipeline {
namespace {

namespace fs = std::filesystem;

// The names of files in the folder of a missing file.
std::vector<std::string> neighbours(const fs::path &path) {
    constexpr size_t enough = 1000;
    std::vector<std::string> names;
    std::error_code error;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    for (auto it = fs::directory_iterator(folder, error);
         !error && it != fs::directory_iterator() && names.size() < enough; it.increment(error))
        names.push_back((path.parent_path() / it->path().filename()).string());
    return names;
}

bool is_model(const fs::path &path) {
    std::error_code error;
    const std::string extension = path.extension().string();
    return extension == ".safetensors" || extension == ".json" || extension == ".gguf" ||
           fs::is_directory(path, error) || is_gguf_file(path);
}

} // namespace

void require_path(const fs::path &path, std::string_view expected) {
    std::error_code error;
    if (fs::exists(path, error)) return;
    const std::string shown = printable(path.string(), 400);
    if (error) throw_error(ErrorKind::input, "{}: {}", shown, error.message());
    throw_error(ErrorKind::input, "{}: no such file or folder; expected {}{}", shown, expected,
                did_you_mean(path.string(), neighbours(path)));
}

fs::path model_folder(const std::string &given) {
    const fs::path path(given);
    require_path(path, "a model folder or a GGUF file");
    std::error_code error;
    if (fs::is_directory(path, error)) return path;
    const std::string extension = path.extension().string();
    if (extension == ".safetensors" || path.filename() == "config.json" ||
        path.filename() == "tokenizer.json")
        return path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (extension == ".yaml" || extension == ".yml")
        throw_error(ErrorKind::usage,
                    "{}: expected the folder of a model or a GGUF file, found a pipeline file "
                    "('keel config show' prints a pipeline)",
                    given);
    return path; // the model loader checks it
}

PipelineConfig config_for_target(const std::string &target, std::span<const std::string> overrides,
                                 const OverrideNames &names) {
    require_path(target, "a pipeline file, a model folder or a GGUF file");
    if (!is_model(target)) return load_config(target, overrides, names);
    std::vector<std::string> all{"model.path=" + yaml_scalar(model_folder(target).string()),
                                 "backend.plugin=cpu"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config_from_overrides(all, names);
}

} // namespace keel::pipeline
