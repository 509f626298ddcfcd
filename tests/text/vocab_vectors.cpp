// Compares real vocabularies with vectors that were made with Hugging Face tokenizers. These files
// are too large for the source tree. KEEL_TEST_VOCABS names a folder with subfolders. A subfolder
// has a tokenizer.json or tokenizer.model and a vectors.jsonl. The folder can also contain GGUF
// files with vectors in llama.cpp's format (X.gguf.inp: texts between marks; X.gguf.out: a line of
// ids for each). GGUF files of kinds that Keel refuses are skipped. Exit status 77 means that there
// is nothing to test.
#include "base/error.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

// Returns the number of lines that differ.
int run(const fs::path &folder) {
    const auto tokenizer = keel::load_tokenizer(folder);
    std::ifstream lines(folder / "vectors.jsonl", std::ios::binary);
    std::string line;
    int count = 0;
    int wrong = 0;
    while (std::getline(lines, line)) {
        const auto row = nlohmann::json::parse(line);
        const auto text = row.at("text").get<std::string>();
        ++count;
        const bool same =
            tokenizer->encode(text, false) == row.at("ids").get<std::vector<std::int32_t>>() &&
            tokenizer->encode(text, true) ==
                row.at("with_special").get<std::vector<std::int32_t>>();
        if (!same && wrong++ < 10)
            std::printf("%s line %d differs: %s\n", folder.c_str(), count,
                        line.substr(0, 300).c_str());
    }
    std::printf("%s: %d texts, %d differ\n", folder.c_str(), count, wrong);
    return wrong + (count == 0 ? 1 : 0);
}

std::string read_all(const fs::path &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

int run_gguf(const fs::path &file) {
    std::unique_ptr<keel::Tokenizer> tokenizer;
    try {
        tokenizer = keel::load_tokenizer(file);
    } catch (const keel::Error &refused) {
        std::printf("passed over: %s\n", refused.what());
        return 0;
    }
    const std::string texts = read_all(file.string() + ".inp");
    const std::string mark = "\n__ggml_vocab_test__\n";
    std::istringstream lines(read_all(file.string() + ".out"));
    std::string line;
    int count = 0;
    int wrong = 0;
    for (std::size_t at = 0; at <= texts.size() && std::getline(lines, line);) {
        const std::size_t end = std::min(texts.find(mark, at), texts.size());
        const std::string text = texts.substr(at, end - at);
        at = end + mark.size();
        std::istringstream numbers(line);
        const std::vector<std::int32_t> expected{std::istream_iterator<std::int32_t>(numbers), {}};
        ++count;
        if (tokenizer->encode(text, false) != expected && wrong++ < 10)
            std::printf("%s text %d differs: %s\n", file.c_str(), count,
                        text.substr(0, 300).c_str());
    }
    std::printf("%s: %d texts, %d differ\n", file.c_str(), count, wrong);
    return wrong + (count == 0 ? 1 : 0);
}

} // namespace

int main() {
    const char *root = std::getenv("KEEL_TEST_VOCABS");
    if (root == nullptr || *root == '\0') {
        std::puts("skipped: KEEL_TEST_VOCABS names no folder of vocabularies");
        return 77;
    }
    int vocabularies = 0;
    int wrong = 0;
    try {
        for (const auto &entry : fs::directory_iterator(root)) {
            const bool is_folder = fs::exists(entry.path() / "vectors.jsonl");
            const bool is_gguf =
                entry.path().extension() == ".gguf" && fs::exists(entry.path().string() + ".out");
            if (!is_folder && !is_gguf) continue;
            ++vocabularies;
            wrong += is_folder ? run(entry.path()) : run_gguf(entry.path());
        }
    } catch (const std::exception &error) {
        std::printf("failed: %s\n", error.what());
        return 1;
    }
    if (vocabularies == 0) {
        std::printf("failed: no folder with a vectors.jsonl and no GGUF file with vectors in %s\n",
                    root);
        return 1;
    }
    return wrong == 0 ? 0 : 1;
}
