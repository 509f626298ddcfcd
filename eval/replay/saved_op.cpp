#include "eval/replay/saved_op.hpp"

#include "base/display.hpp"
#include "base/json_reader.hpp"
#include "numbers/convert.hpp"
#include "ops/op_table.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_json = uint64_t{1} << 20;
constexpr uint64_t largest_tensor = uint64_t{64} << 20;
// Limit for the bytes of the tensor "weight". The tensor's file must have the full size, so a wrong
// size in op.json cannot cause a large allocation.
constexpr uint64_t largest_weight = uint64_t{1} << 30;
constexpr size_t most_tensors = 64;

// Reads op.json and the files of the tensors.
class Reader {
  public:
    explicit Reader(const fs::path &path)
        : file_(file_of(path)), text_(read_text_file(file_, largest_json)),
          document_(text_, file_.string(), {largest_json, 16}), root_(document_.object()) {
        const JsonNode format = root_.at("format");
        if (text_of(root_, "format") != "keel-op/1")
            format.expected("the format 'keel-op/1', which `keel compare` writes");
    }

    SavedOp read() {
        SavedOp op;
        op.file = file_;
        op.op = op_id();
        op.label = printable(text_of(root_, "label"));
        op.kernel = optional_text("kernel");
        op.step = optional_text("step");
        op.backend = optional_text("backend");
        op.against = optional_text("against");
        op.features = root_.at("features").integer(0, INT64_MAX);
        const JsonNode scalars = root_.at("scalars");
        for (const auto &[key, number] : scalars.members()) {
            if (op.scalars.size() == most_tensors) scalars.expected("fewer scalars");
            op.scalars[std::string(key)] = number.number();
        }
        const JsonNode tensors = root_.at("tensors");
        for (size_t i = 0; i < tensors.size(most_tensors); ++i)
            op.tensors.push_back(tensor(tensors.element(i)));
        if (!root_.has("outputs"))
            root_.fail("'outputs' is missing, because an earlier version saved this op; save it "
                       "again with `keel "
                       "compare`");
        const JsonNode outputs = root_.at("outputs");
        for (size_t i = 0; i < outputs.size(most_tensors); ++i) {
            const JsonNode one = outputs.element(i);
            op.outputs.push_back({text_of(one, "name"), dtype(one), shape(one)});
        }
        return op;
    }

  private:
    static fs::path file_of(const fs::path &path) {
        std::error_code error;
        if (!fs::is_directory(path, error)) return path;
        fs::path file = path / "op.json";
        if (!fs::exists(file, error) && !error)
            throw_error(
                ErrorKind::input,
                "{}: the folder has no op.json; expected a folder that `keel compare` wrote",
                printable(path.string(), 400));
        return file;
    }

    static const std::string &text_of(const JsonNode &object, const char *key) {
        return object.at(key).text(4096);
    }
    std::string optional_text(const char *key) const {
        return root_.find(key) ? printable(text_of(root_, key)) : std::string{};
    }

    keel_op op_id() const {
        const std::string &name = text_of(root_, "op");
        for (keel_op op = 1; op <= op_count; ++op) {
            if (name == op_name(op)) return op;
        }
        root_.at("op").fail(fmt::format("unknown op {}", quote_text(name)));
    }
    static keel_dtype dtype(const JsonNode &object) {
        const std::string &name = text_of(object, "dtype");
        for (const keel_dtype type :
             {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0,
              KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K, KEEL_DTYPE_I32}) {
            if (name == keel_dtype_name(type)) return type;
        }
        object.at("dtype").expected("f32, f16, bf16, q8_0, q4_0, q4_k, q5_k, q6_k or i32");
    }
    // Reads a shape of 1 to 4 dimensions with at most `most` elements. The default limit is the
    // number of f32 elements in largest_tensor bytes.
    static std::vector<int64_t> shape(const JsonNode &object,
                                      int64_t most = static_cast<int64_t>(largest_tensor /
                                                                          sizeof(float))) {
        const JsonNode value = object.at("shape");
        if (value.size() == 0 || value.size() > KEEL_MAX_RANK)
            value.expected(fmt::format("1 to {} dimensions", KEEL_MAX_RANK));
        std::vector<int64_t> dims;
        int64_t elements = 1;
        for (size_t i = 0; i < value.size(); ++i) {
            dims.push_back(value.element(i).integer(0, most));
            elements *= dims.back(); // the product cannot overflow, because both factors are at
                                     // most 2^31
            if (elements > most)
                value.fail("the tensor is larger than the limit for saved tensors");
        }
        return dims;
    }
    SavedTensor tensor(const JsonNode &object) {
        SavedTensor t;
        t.name = text_of(object, "name");
        t.role = text_of(object, "role");
        t.dtype = dtype(object);
        if (!object.has("file")) object.fail("'file' is missing");
        t.present = object.find("file").has_value();
        // The tensor was too large to be saved. The shape of a tensor without data is not checked.
        if (!t.present) return t;
        const bool is_weight = t.role == "in" && t.name == "weight";
        t.shape = is_weight ? shape(object, int64_t{1} << 31) : shape(object);
        const uint32_t block = keel_dtype_block(t.dtype);
        if (t.shape.back() % block != 0)
            object.fail(
                fmt::format("expected rows of whole blocks, found rows of {} elements in {}",
                            t.shape.back(), keel_dtype_name(t.dtype)));
        const fs::path name(text_of(object, "file"));
        // The file must be in the same folder as op.json.
        if (name.empty() || name != name.filename() || name == "." || name == "..")
            object.at("file").expected("a file's name");
        const uint64_t bytes =
            static_cast<uint64_t>(t.elements()) / block * keel_dtype_bytes(t.dtype);
        total_ += bytes;
        if (bytes > largest_weight || total_ > 2 * largest_weight)
            object.fail("the tensor is larger than the limit for saved tensors");
        read_bytes(file_.parent_path() / name, bytes, t.bytes);
        return t;
    }
    void read_bytes(const fs::path &path, uint64_t bytes, std::vector<std::byte> &out) const {
        std::error_code error;
        const bool is_file = fs::is_regular_file(path, error);
        const uint64_t size = is_file ? fs::file_size(path, error) : 0;
        if (!is_file || error)
            throw_error(ErrorKind::input, "{}: this file of {} does not exist", path.string(),
                        file_.string());
        if (size != bytes)
            throw_error(ErrorKind::input, "{}: expected {} bytes (from {}), found {}",
                        path.string(), bytes, file_.string(), size);
        out.resize(bytes);
        std::ifstream in(path, std::ios::binary);
        in.read(reinterpret_cast<char *>(out.data()), static_cast<std::streamsize>(bytes));
        if (!in) throw_error(ErrorKind::input, "{}: cannot read {} bytes", path.string(), bytes);
    }

    fs::path file_;
    std::string text_;
    JsonDocument document_;
    JsonNode root_;
    uint64_t total_ = 0; // bytes of all tensors
};

} // namespace

int64_t SavedTensor::elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
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
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const SavedTensor &t) {
        return t.role == role && t.name == name;
    });
    return found == tensors.end() ? nullptr : &*found;
}

const SavedTensor &SavedOp::need(std::string_view role, std::string_view name) const {
    const SavedTensor *t = find(role, name);
    if (t == nullptr)
        throw_error(ErrorKind::input, "{}: {} needs tensor '{}' ({}), which is missing",
                    file.string(), op_name(op), name, role);
    if (!t->present)
        throw_error(ErrorKind::input,
                    "{}: tensor '{}' was too large to be saved, so this {} cannot be replayed; "
                    "compare with a smaller model or a shorter prompt",
                    file.string(), name, op_name(op));
    return *t;
}

double SavedOp::scalar(std::string_view name, double low, double high) const {
    const auto found = scalars.find(name);
    if (found == scalars.end())
        throw_error(ErrorKind::input, "{}: {} needs scalar '{}', which is missing", file.string(),
                    op_name(op), name);
    if (!(found->second >= low && found->second <= high))
        throw_error(ErrorKind::input, "{}: scalar '{}': expected {} to {}, found {}", file.string(),
                    name, low, high, found->second);
    return found->second;
}

SavedOp load_saved_op(const fs::path &path) { return Reader(path).read(); }

} // namespace keel
