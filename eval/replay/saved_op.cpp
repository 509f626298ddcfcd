#include "eval/replay/saved_op.hpp"

#include "base/display.hpp"
#include "numbers/convert.hpp"
#include "ops/op_table.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t largest_json = uint64_t{1} << 20;
constexpr uint64_t largest_tensor = uint64_t{64} << 20;
constexpr uint64_t largest_weight = uint64_t{1}
                                    << 30; // of "weight" alone, which a file of that size has to hold
constexpr size_t most_tensors = 64;
constexpr int deepest = 16;

// What reading one op.json needs to say where it stands.
class Reader {
  public:
    explicit Reader(const fs::path &path) {
        std::error_code error;
        const bool is_folder = fs::is_directory(path, error);
        file_ = is_folder ? path / "op.json" : path;
        if (is_folder && !fs::exists(file_, error) && !error)
            throw_error(ErrorKind::input, "{}: no op.json in it; expected a folder that `keel compare` wrote",
                        printable(path.string(), 400));
        const std::string text = read_text_file(file_, largest_json);
        try {
            const auto limit = [](int depth, Json::parse_event_t, Json &) {
                if (depth > deepest) throw_error(ErrorKind::input, "nested too deeply");
                return true;
            };
            json_ = Json::parse(text, limit);
        } catch (const Json::exception &) {
            fail("expected the JSON that `keel compare` saves, found something else");
        } catch (const Error &e) {
            fail(e.what());
        }
        if (!json_.is_object())
            fail(fmt::format("expected an object, as `keel compare` saves it, found {}", json_.type_name()));
        if (const std::string format = text_of(json_, "format"); format != "keel-op/1")
            fail(fmt::format("expected the format 'keel-op/1', as `keel compare` saves it, found '{}'",
                             printable(format, 60)));
    }

    SavedOp read() {
        SavedOp op;
        op.file = file_;
        op.op = op_id(text_of(json_, "op"));
        op.label = printable(text_of(json_, "label"));
        op.kernel = optional_text("kernel");
        op.step = optional_text("step");
        op.backend = optional_text("backend");
        op.against = optional_text("against");
        op.features = whole(json_, "features", 0, INT64_MAX);
        read_scalars(op);
        for (const Json &one : list(json_, "tensors"))
            op.tensors.push_back(tensor(one));
        if (!json_.contains("outputs"))
            fail("it has no 'outputs': an earlier version saved it; save it again with `keel compare`");
        for (const Json &one : list(json_, "outputs"))
            op.outputs.push_back({text_of(one, "name"), dtype(one), shape(one)});
        return op;
    }

  private:
    [[noreturn]] void fail(const std::string &what) const {
        throw_error(ErrorKind::input, "{}: {}", file_.string(), what);
    }

    const Json &member(const Json &object, const char *key) const {
        if (!object.is_object() || !object.contains(key)) fail(fmt::format("'{}' is missing", key));
        return object[key];
    }
    std::string text_of(const Json &object, const char *key) const {
        const Json &value = member(object, key);
        if (!value.is_string() || value.get_ref<const std::string &>().size() > 4096)
            fail(fmt::format("expected a text for '{}'", key));
        return value.get<std::string>();
    }
    std::string optional_text(const char *key) const {
        return json_.contains(key) ? printable(text_of(json_, key)) : std::string{};
    }
    int64_t whole(const Json &object, const char *key, int64_t low, int64_t high) const {
        return in_range(member(object, key), key, low, high);
    }
    int64_t in_range(const Json &value, const char *key, int64_t low, int64_t high) const {
        const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(high)
                                                     : value.is_number_integer();
        if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
            fail(fmt::format("expected a whole number from {} to {} for '{}'", low, high, key));
        return value.get<int64_t>();
    }
    const Json &list(const Json &object, const char *key) const {
        const Json &value = member(object, key);
        if (!value.is_array() || value.size() > most_tensors)
            fail(fmt::format("expected a list of at most {} for '{}'", most_tensors, key));
        return value;
    }

    keel_op op_id(const std::string &name) const {
        for (keel_op op = 1; op <= op_count; ++op) {
            if (name == op_name(op)) return op;
        }
        fail(fmt::format("there is no op '{}'", printable(name, 60)));
    }
    keel_dtype dtype(const Json &object) const {
        const std::string name = text_of(object, "dtype");
        for (const keel_dtype type :
             {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0,
              KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K, KEEL_DTYPE_I32}) {
            if (name == keel_dtype_name(type)) return type;
        }
        fail(fmt::format(
            "expected f32, f16, bf16, q8_0, q4_0, q4_k, q5_k, q6_k or i32 for 'dtype', found '{}'",
            printable(name, 60)));
    }
    // Of 1 to 4 dimensions; what it holds is at most largest_tensor bytes as f32, or `most` elements.
    std::vector<int64_t> shape(const Json &object,
                               int64_t most = static_cast<int64_t>(largest_tensor / sizeof(float))) const {
        const Json &value = member(object, "shape");
        if (!value.is_array() || value.empty() || value.size() > KEEL_MAX_RANK)
            fail(fmt::format("expected 1 to {} dimensions for 'shape'", KEEL_MAX_RANK));
        std::vector<int64_t> dims;
        int64_t elements = 1;
        for (const Json &dim : value) {
            dims.push_back(in_range(dim, "shape", 0, most));
            elements *= dims.back(); // at most 2^31 * 2^31
            if (elements > most) fail("a tensor is larger than any that is saved");
        }
        return dims;
    }
    void read_scalars(SavedOp &op) const {
        const Json &value = member(json_, "scalars");
        if (!value.is_object() || value.size() > most_tensors) fail("expected numbers for 'scalars'");
        for (const auto &[key, number] : value.items()) {
            if (!number.is_number() || !std::isfinite(number.get<double>()))
                fail(fmt::format("expected a number for scalar '{}'", printable(key, 60)));
            op.scalars[key] = number.get<double>();
        }
    }
    SavedTensor tensor(const Json &object) {
        SavedTensor t;
        t.name = text_of(object, "name");
        t.role = text_of(object, "role");
        t.dtype = dtype(object);
        const Json &file = member(object, "file");
        t.present = !file.is_null();
        if (!t.present) return t; // its shape may be anything: it was too large
        const bool is_weight = t.role == "in" && t.name == "weight";
        t.shape = is_weight ? shape(object, int64_t{1} << 31) : shape(object);
        const uint32_t block = keel_dtype_block(t.dtype);
        if (t.shape.back() % block != 0)
            fail(fmt::format("tensor {}: rows of {} are no whole blocks of {}", printable(t.name, 60),
                             t.shape.back(), keel_dtype_name(t.dtype)));
        const fs::path name(text_of(object, "file"));
        // In the same folder, whatever the file says.
        if (name.empty() || name != name.filename() || name == "." || name == "..")
            fail(fmt::format("expected a file's name for 'file', found '{}'", printable(name.string(), 60)));
        const uint64_t bytes = static_cast<uint64_t>(t.elements()) / block * keel_dtype_bytes(t.dtype);
        total_ += bytes;
        if (bytes > largest_weight || total_ > 2 * largest_weight)
            fail(fmt::format("tensor {} is larger than any that is saved", printable(t.name, 60)));
        read_bytes(file_.parent_path() / name, bytes, t.bytes);
        return t;
    }
    void read_bytes(const fs::path &path, uint64_t bytes, std::vector<std::byte> &out) const {
        std::error_code error;
        const bool is_file = fs::is_regular_file(path, error);
        const uint64_t size = is_file ? fs::file_size(path, error) : 0;
        if (!is_file || error)
            throw_error(ErrorKind::input, "{}: no such file; {} names it", path.string(), file_.string());
        if (size != bytes)
            throw_error(ErrorKind::input, "{}: expected {} bytes, as {} says, found {}", path.string(), bytes,
                        file_.string(), size);
        out.resize(bytes);
        std::ifstream in(path, std::ios::binary);
        in.read(reinterpret_cast<char *>(out.data()), static_cast<std::streamsize>(bytes));
        if (!in) throw_error(ErrorKind::input, "{}: cannot read {} bytes", path.string(), bytes);
    }

    fs::path file_;
    Json json_;
    uint64_t total_ = 0; // bytes of tensors
};

} // namespace

int64_t SavedTensor::elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape)
        n *= dim;
    return n;
}

std::vector<float> SavedTensor::floats() const {
    std::vector<float> values(static_cast<size_t>(elements()));
    if (dtype == KEEL_DTYPE_I32) {
        const std::vector<int32_t> whole = ints();
        std::copy(whole.begin(), whole.end(), values.begin());
    } else {
        convert_to_f32(dtype, bytes.data(), values.data(), values.size());
    }
    return values;
}

std::vector<int32_t> SavedTensor::ints() const {
    std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(int32_t));
    return values;
}

const SavedTensor *SavedOp::find(std::string_view role, std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const SavedTensor &t) { return t.role == role && t.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

const SavedTensor &SavedOp::need(std::string_view role, std::string_view name) const {
    const SavedTensor *t = find(role, name);
    if (t == nullptr)
        throw_error(ErrorKind::input, "{}: {} needs tensor '{}' ({}), which is not there", file.string(),
                    op_name(op), name, role);
    if (!t->present)
        throw_error(
            ErrorKind::input,
            "{}: tensor '{}' was too large to be saved, so this {} cannot be repeated; compare with a "
            "smaller model or a shorter prompt",
            file.string(), name, op_name(op));
    return *t;
}

double SavedOp::scalar(std::string_view name, double low, double high) const {
    const auto found = scalars.find(name);
    if (found == scalars.end())
        throw_error(ErrorKind::input, "{}: {} needs scalar '{}', which is not there", file.string(),
                    op_name(op), name);
    if (!(found->second >= low && found->second <= high))
        throw_error(ErrorKind::input, "{}: scalar '{}': expected {} to {}, found {}", file.string(), name,
                    low, high, found->second);
    return found->second;
}

SavedOp load_saved_op(const fs::path &path) {
    return Reader(path).read();
}

} // namespace keel
