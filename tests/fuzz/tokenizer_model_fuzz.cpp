#include "base/error.hpp"
#include "tokenizer_promises.hpp"

#include <algorithm>

// Input: a tokenizer.model. Bytes after the last NUL byte are a tokenizer_config.json. They give
// either a keel::Error, or a tokenizer that passes check_tokenizer_promises.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view all(reinterpret_cast<const char *>(data), size);
    const size_t cut = std::min(all.rfind(std::string_view("\0{", 2)), all.size());
    const std::string_view model = all.substr(0, cut);
    const std::string_view config = cut < all.size() ? all.substr(cut + 1) : std::string_view();
    if (model.empty()) return 0;
    try {
        const auto tokenizer = keel::parse_tokenizer({{}, config, {}, {}, {}, model});
        check_tokenizer_promises(*tokenizer, model.substr(0, 64));
    } catch (const keel::Error &) {
    }
    return 0;
}
