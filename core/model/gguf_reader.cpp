#include "model/gguf_reader.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <charconv>

namespace keel::gguf {
namespace {

using nlohmann::json;

constexpr uint64_t max_layers = 4096;

} // namespace

double as_written(float value) {
    const std::string text = fmt::format("{}", value);
    double result = value;
    std::from_chars(text.data(), text.data() + text.size(), result);
    return result;
}

MetadataReader::MetadataReader(std::span<const GgufFile> files)
    : files_(files), file_(files.front()) {
    const auto name = file_.text("general.architecture");
    if (!name) {
        throw_error(ErrorKind::input,
                    "{}: metadata key 'general.architecture' is missing; is this a model?",
                    file_.name());
    }
    architecture_ = find_by_name(*name);
    if (architecture_ == nullptr) {
        file_.fail("general.architecture", fmt::format("'{}' is not supported; supported: {}",
                                                       printable(*name), architecture_names()));
    }
}

json MetadataReader::value(const std::string &name) const {
    const GgufEntry &entry = *file_.find(name);
    if (entry.is_array()) {
        const auto values = file_.integers(name, max_layers);
        if (values->empty()) file_.fail(name, "the array is empty");
        if (std::adjacent_find(values->begin(), values->end(), std::not_equal_to<>()) !=
            values->end())
            file_.fail(name, "different values for different layers are not supported");
        return values->front();
    }
    switch (entry.type) {
    case GgufType::string: return printable(*file_.text(name));
    case GgufType::boolean: return *file_.boolean(name);
    case GgufType::f32:
    case GgufType::f64: {
        const double number = *file_.number(name, -1e30, 1e30);
        return entry.type == GgufType::f32 ? as_written(static_cast<float>(number)) : number;
    }
    default: return *file_.integer(name);
    }
}

double MetadataReader::number_or(std::string_view from, double fallback) const {
    const std::string name = key(from);
    return file_.has(name) ? as_written(static_cast<float>(*file_.number(name, -1e30, 1e30)))
                           : fallback;
}

MetadataReader::Found MetadataReader::find(std::string_view name) const {
    for (const GgufFile &file : files_) {
        for (const GgufTensor &t : file.tensors()) {
            if (t.name == name) return {&file, &t};
        }
    }
    return {};
}

std::optional<int64_t> MetadataReader::rows_of(std::string_view name) const {
    const GgufTensor *matrix = tensor(name);
    if (matrix == nullptr || matrix->shape.size() != 2) return std::nullopt;
    return matrix->shape[0];
}

std::vector<float> MetadataReader::vector_of(std::string_view name) const {
    const auto [file, stored] = find(name);
    constexpr int64_t most = 4096;
    if (stored == nullptr || stored->type->id != ggml::f32 || stored->shape.size() != 1 ||
        stored->shape[0] > most) {
        throw_error(ErrorKind::input, "{}: tensor '{}': expected up to {} numbers of F32, {}",
                    file_.name(), name, most,
                    stored == nullptr ? "found no tensor"
                                      : fmt::format("found {} of {}", shape_text(stored->shape),
                                                    stored->type->name));
    }
    std::vector<float> values(static_cast<size_t>(stored->shape[0]));
    convert_to_f32(KEEL_DTYPE_F32, file->bytes().data() + stored->offset, values.data(),
                   values.size());
    return values;
}

} // namespace keel::gguf
