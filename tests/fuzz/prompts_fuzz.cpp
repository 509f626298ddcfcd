// Input: a file of prompts. It gives either an error of one line that names the line of the file,
// or prompts with different ids.
#include "base/error.hpp"
#include "run/prompt_file.hpp"

#include <set>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    try {
        std::set<std::string> ids;
        for (const keel::BatchPrompt &prompt : keel::parse_prompts(text, "prompts.jsonl")) {
            if (prompt.id.empty() || !ids.insert(prompt.id).second) std::abort();
            if (prompt.max_tokens && *prompt.max_tokens < 1) std::abort();
        }
        if (ids.empty()) std::abort();
    } catch (const keel::Error &error) {
        const std::string_view message = error.what();
        if (message.empty() || message.find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}
