#include "base/error.hpp"
#include "tokenizer_promises.hpp"

#include <algorithm>
#include <array>

// Input: the texts of up to three files, separated by NUL bytes: tokenizer.json,
// tokenizer_config.json, generation_config.json. They give either a keel::Error, or a tokenizer
// that passes check_tokenizer_promises on any text, including the input itself.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    std::string_view rest(reinterpret_cast<const char *>(data), size);
    std::array<std::string_view, 3> files;
    for (std::string_view &file : files) {
        file = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(rest.size(), file.size() + 1));
    }
    try {
        const auto tokenizer = keel::parse_tokenizer({files[0], files[1], files[2], {}, {}});
        check_tokenizer_promises(
            *tokenizer, files[0].substr(files[0].size() - std::min<size_t>(files[0].size(), 64)));
        check_chat_promises(keel::find_chat_template({}, files[1], ""), *tokenizer);
    } catch (const keel::Error &) {
    }
    return 0;
}
