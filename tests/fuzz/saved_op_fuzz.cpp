// Input: op.json of a saved op. Small files are made for its tensors, so that the op itself runs.
// Any input gives either a keel::Error, or the op runs on the core's plain loops.
#include "base/error.hpp"
#include "eval/replay/replay.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "keel-fuzz-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) std::abort();
        path_ = name;
    }
    ~Folder() {
        std::error_code error;
        fs::remove_all(path_, error);
    }
    const fs::path &path() const { return path_; }

  private:
    fs::path path_;
};

void write(const fs::path &file, const std::string &bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc).write(bytes.data(), std::ssize(bytes));
}

// Returns the content of a tensor's file: small numbers of its type, the same in each run.
std::string content(const std::string &dtype, int64_t elements) {
    std::string bytes;
    for (int64_t i = 0; i < elements; ++i) {
        if (dtype == "i32") {
            const auto value = static_cast<int32_t>(i % 8);
            bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
        } else if (dtype == "f32") {
            const float value = static_cast<float>(i % 13 - 6) / 4;
            bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
        } else if (dtype == "q8_0" || dtype == "q4_0") {
            if (i % 32 == 0) bytes.append(dtype == "q8_0" ? 34 : 18, '\x11');
        } else {
            bytes.append(2, '\x11');
        }
    }
    return bytes;
}

void write_tensors(const Json &op, const fs::path &folder) {
    if (!op.is_object() || !op.contains("tensors") || !op["tensors"].is_array()) return;
    for (const Json &tensor : op["tensors"]) {
        try {
            const auto name = tensor.at("file").get<std::string>();
            if (name.empty() || name.size() > 40 || name.find('/') != std::string::npos ||
                name[0] == '.')
                continue;
            int64_t elements = 1;
            for (const Json &dim : tensor.at("shape")) {
                const auto size = dim.get<int64_t>();
                if (size < 0 || size > 65536) return;
                elements = std::min<int64_t>(elements * size, 65537);
            }
            if (elements <= 65536)
                write(folder / name, content(tensor.at("dtype").get<std::string>(), elements));
        } catch (const Json::exception &) {
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const auto device = keel::Device::open_reference(std::make_shared<keel::HostServices>());
    const Folder folder;
    const std::string text(reinterpret_cast<const char *>(data), size);
    write(folder.path() / "op.json", text);
    if (text.find("[[[[[[[[[[[[[[[[") == std::string::npos)
        write_tensors(Json::parse(text, nullptr, false), folder.path());
    try {
        const keel::SavedOp saved = keel::load_saved_op(folder.path());
        (void)keel::replay_text(keel::replay_op(saved, device, {}));
    } catch (const keel::Error &error) {
        if (error.kind() == keel::ErrorKind::internal) std::abort();
        if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
    return 0;
}
