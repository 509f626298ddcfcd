// Opens GGUF files as models: finds all parts of a split file, and names and types their tensors.

#include "base/display.hpp"
#include "base/error.hpp"
#include "format/ggml_blocks.hpp"
#include "model/expert_tensors.hpp"
#include "model/gguf_model.hpp"

namespace keel::gguf {
namespace {

namespace fs = std::filesystem;

constexpr int64_t max_parts = 999;

// Returns the dtype of a GGML type. KEEL_DTYPE_NONE if Keel does not compute with the type.
keel_dtype keel_type(uint32_t ggml_type) {
    switch (ggml_type) {
    case ggml::f32: return KEEL_DTYPE_F32;
    case ggml::f16: return KEEL_DTYPE_F16;
    case ggml::bf16: return KEEL_DTYPE_BF16;
    case ggml::q8_0: return KEEL_DTYPE_Q8_0;
    case ggml::q4_0: return KEEL_DTYPE_Q4_0;
    case ggml::q4_k: return KEEL_DTYPE_Q4_K;
    case ggml::q5_k: return KEEL_DTYPE_Q5_K;
    case ggml::q6_k: return KEEL_DTYPE_Q6_K;
    default: return KEEL_DTYPE_NONE;
    }
}

// Returns the number of heads whose rows are interleaved in the tensor `name`, or 0.
int64_t interleaved_heads(const ModelConfig &config, std::string_view name) {
    const ArchitectureName *row = find_by_architecture(config.architecture->name);
    if (row == nullptr || !row->interleaved) return 0;
    const LayerNames &names = config.architecture->names;
    const auto is = [&](std::string_view part) {
        return name.find(fmt::format(".{}.", part)) != std::string_view::npos;
    };
    return is(names.q) ? config.heads : is(names.k) ? config.kv_heads : 0;
}

TensorInfo tensor_info(const GgufTensor &stored, const ModelConfig &config, uint32_t file) {
    TensorInfo tensor;
    tensor.name = folder_tensor_name(*config.architecture, stored.name);
    tensor.stored_name = stored.name;
    tensor.dtype = keel_type(stored.type->id);
    tensor.dtype_name = stored.type->name;
    if (tensor.dtype == KEEL_DTYPE_NONE && can_decode_ggml(stored.type->id))
        tensor.packed = stored.type->id;
    tensor.shape = stored.shape;
    tensor.file = file;
    tensor.offset = stored.offset;
    tensor.bytes = stored.bytes;
    // The router of a shared expert has one row. GGUF stores this row as a vector.
    if (tensor.shape.size() == 1 &&
        tensor.name.ends_with(fmt::format(".{}.weight", config.architecture->names.shared_router)))
        tensor.shape.insert(tensor.shape.begin(), 1);
    tensor.interleaved_heads = interleaved_heads(config, tensor.name);
    return tensor;
}

// The file name of part `part` (counted from 0) of `parts`, made from the name of the first part.
fs::path part_name(const fs::path &first, int64_t part, int64_t parts) {
    const std::string ending = fmt::format("-{:05}-of-{:05}.gguf", 1, parts);
    const std::string name = first.filename().string();
    if (!name.ends_with(ending)) {
        throw_error(ErrorKind::input,
                    "{}: this is the first of {} files (split.count), so its name must end in "
                    "'{}'; give the file its original name",
                    first.string(), parts, ending);
    }
    return first.parent_path() / (name.substr(0, name.size() - ending.size()) +
                                  fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts));
}

// Opens part `part`. Throws if the metadata of the file has another part number.
GgufFile open_part(const fs::path &first, int64_t part, int64_t parts) {
    const fs::path path = part_name(first, part, parts);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
        throw_error(ErrorKind::input,
                    "{}: the file is missing, but {} is one of {} files; is the download complete?",
                    path.string(), first.string(), parts);
    }
    GgufFile file(path);
    if (file.integer("split.no", 0, max_parts).value_or(0) != part ||
        file.integer("split.count", 0, max_parts).value_or(1) != parts) {
        throw_error(ErrorKind::input, "{}: expected part {} of {}, found part {} of {}",
                    path.string(), part + 1, parts, file.integer("split.no").value_or(0) + 1,
                    file.integer("split.count").value_or(1));
    }
    return file;
}

// Refuses a file that an older Keel wrote in the private layout of a backend (`keel quantize
// --layout native`). Its matrices are tensors of plain bytes.
void refuse_backend_layout(const GgufFile &file) {
    constexpr std::string_view key = "keel.layout";
    if (const GgufEntry *layout = file.find(key)) {
        file.fail(
            key, fmt::format("the weights are stored in the private layout of a backend, {}, which "
                             "Keel no longer reads; use the model from which this file was made",
                             file.describe(*layout)));
    }
}

void add_file(const GgufFile &file, ModelSource::Parts &parts) {
    const auto index = static_cast<uint32_t>(parts.files.size());
    parts.files.push_back(file.mapping());
    for (const GgufTensor &tensor : file.tensors())
        parts.tensors.push_back(tensor_info(tensor, parts.config, index));
}

} // namespace

std::shared_ptr<const ModelSource> open_source(const fs::path &path) {
    std::vector<GgufFile> files;
    files.emplace_back(path);
    const int64_t count = files[0].integer("split.count", 0, max_parts).value_or(1);
    const int64_t number = files[0].integer("split.no", 0, max_parts).value_or(0);
    if (count > 1 && number != 0) {
        throw_error(ErrorKind::input, "{}: this is file {} of {}; give the first one",
                    path.string(), number + 1, count);
    }
    for (int64_t part = 1; part < count; ++part) files.push_back(open_part(path, part, count));
    for (const GgufFile &file : files) refuse_backend_layout(file);
    ModelSource::Parts parts;
    parts.path = path.string();
    parts.config_name = "its metadata";
    parts.config = read_config(files);
    parts.stored_name = [architecture = parts.config.architecture](std::string_view name) {
        const std::optional<int64_t> expert = expert_number(*architecture, name);
        const std::string stored = stored_tensor_name(*architecture, name);
        return expert ? fmt::format("{}, expert {}", stored, *expert) : stored;
    };
    for (const GgufFile &file : files) add_file(file, parts);
    const size_t tensors = parts.tensors.size();
    parts.tensors = split_experts(std::move(parts.tensors), parts.config, parts.config_name,
                                  [&](const TensorInfo &t) { return parts.files[t.file]->path(); });
    auto source = std::make_shared<const ModelSource>(
        std::move(parts)); // throws if two files have a tensor with the same name
    const auto wanted = files[0].integer("split.tensors.count");
    if (count > 1 && wanted && *wanted != static_cast<int64_t>(tensors)) {
        throw_error(ErrorKind::input,
                    "{}: split.tensors.count is {}, but the {} files have {} tensors together",
                    path.string(), *wanted, count, tensors);
    }
    return source;
}

} // namespace keel::gguf
