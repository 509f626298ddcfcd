// A file of prompts from outside: refused with one line that names the line, or prompts whose ids are all different.
#include "base/error.hpp"
#include "memory_file.hpp"
#include "run_batch.hpp"

#include <set>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const MemoryFile file(data, size);
    try {
        std::set<std::string> ids;
        for (const keel::cli::BatchPrompt &prompt : keel::cli::read_prompts(file.path())) {
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
