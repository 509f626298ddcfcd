// Real vocabularies against vectors made with Hugging Face tokenizers. They are too large for the tree: KEEL_TEST_VOCABS
// names a folder whose subfolders hold a tokenizer.json and a vectors.jsonl. Exit status 77: nothing to run.
#include "text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

// The number of lines that differ.
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
            tokenizer->encode(text, true) == row.at("with_special").get<std::vector<std::int32_t>>();
        if (!same && wrong++ < 10)
            std::printf("%s line %d differs: %s\n", folder.c_str(), count, line.substr(0, 300).c_str());
    }
    std::printf("%s: %d texts, %d differ\n", folder.c_str(), count, wrong);
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
            if (!fs::exists(entry.path() / "vectors.jsonl")) continue;
            ++vocabularies;
            wrong += run(entry.path());
        }
    } catch (const std::exception &error) {
        std::printf("failed: %s\n", error.what());
        return 1;
    }
    if (vocabularies == 0) {
        std::printf("failed: no folder with a vectors.jsonl in %s\n", root);
        return 1;
    }
    return wrong == 0 ? 0 : 1;
}
