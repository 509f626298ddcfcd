#include "base/error.hpp"
#include "format/gguf.hpp"
#include "tokenizer_promises.hpp"

#include <algorithm>

// Input: the vocabulary and the chat template of a GGUF file. They give either a keel::Error, or a
// tokenizer that passes check_tokenizer_promises.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try {
        const keel::GgufFile file({reinterpret_cast<const std::byte *>(data), size}, "fuzz.gguf");
        const auto tokenizer = keel::parse_gguf_tokenizer(file);
        const std::string_view all(reinterpret_cast<const char *>(data), size);
        check_tokenizer_promises(*tokenizer, all.substr(size - std::min<size_t>(size, 64)));
        check_chat_promises(keel::find_chat_template(file, "m.gguf"), *tokenizer);
    } catch (const keel::Error &) {
    }
    return 0;
}
