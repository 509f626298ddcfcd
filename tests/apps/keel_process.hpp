#pragma once

#include "support/contains.hpp"
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace keel::test {

inline const std::string source_folder = KEEL_SOURCE_DIR;
inline const std::string tiny = source_folder + "/models/tiny";
inline const std::string heldout = tiny + "/heldout.txt";
inline const std::string quickstart = source_folder + "/configs/quickstart.yaml";

// Runs the built program once.
inline ProcessResult run_keel(std::vector<std::string> arguments,
                              const ProcessOptions &options = {}) {
    arguments.insert(arguments.begin(), std::string(KEEL_BINARY_DIR) + "/bin/keel");
    return run_process(arguments, options);
}

inline ProcessResult run_in(const std::string &folder, std::vector<std::string> arguments) {
    ProcessOptions options;
    options.folder = folder;
    return run_keel(std::move(arguments), options);
}

inline nlohmann::json parse_json(const ProcessResult &result) {
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    return nlohmann::json::parse(result.out);
}

// Checks that a failed command has the exit code `code`, prints one line to standard error and
// nothing to standard output. Returns this line.
inline std::string failure(const ProcessResult &result, int code = 2) {
    INFO("stdout: " << result.out << "\nstderr: " << result.err);
    CHECK(result.code == code);
    CHECK(result.signal == 0);
    CHECK(result.out.empty());
    CHECK(result.err.starts_with("keel: error: "));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.err.ends_with('\n'));
    return result.err;
}

inline std::string read_file(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::filesystem::path &path) {
    return nlohmann::json::parse(read_file(path));
}

// A copy of models/tiny. A test may damage it.
class TinyCopy {
  public:
    TinyCopy() {
        for (const char *name :
             {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"})
            std::filesystem::copy_file(tiny + "/" + name, folder_ / name);
    }
    std::string path() const { return folder_.path().string(); }
    std::string read(std::string_view name) const { return read_file(folder_ / name); }
    void write(std::string_view name, std::string_view content) const {
        folder_.write(name, content);
    }

    void change_config(const std::string &key, const nlohmann::json &value) const {
        auto config = nlohmann::json::parse(read("config.json"));
        config[key] = value;
        write("config.json", config.dump());
    }
    // Returns the position in the file at which a tensor's data begins.
    static size_t data_offset(const std::string &file, const std::string &tensor) {
        uint64_t length = 0;
        for (size_t i = 0; i < 8; ++i)
            length |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
        const auto header = nlohmann::json::parse(file.substr(8, length));
        return 8 + length + header.at(tensor).at("data_offsets").at(0).get<size_t>();
    }
    // Replaces an element of a BF16 tensor by a NaN.
    void put_nan(const std::string &tensor, size_t element) const {
        std::string file = read("model.safetensors");
        const size_t at = data_offset(file, tensor) + 2 * element;
        file[at] = '\xC0';
        file[at + 1] = '\x7F';
        write("model.safetensors", file);
    }

  private:
    TempFolder folder_;
};

} // namespace keel::test
