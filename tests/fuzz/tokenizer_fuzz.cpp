#include "base/error.hpp"
#include "text/stream.hpp"
#include "text/tokenizer.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

// The texts of up to three files, cut at NUL bytes: tokenizer.json, tokenizer_config.json, generation_config.json. They
// are refused with keel::Error or give a tokenizer that keeps its promises on any text, the input's own bytes included.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    std::string_view rest(reinterpret_cast<const char *>(data), size);
    std::array<std::string_view, 3> files;
    for (std::string_view &file : files) {
        file = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(rest.size(), file.size() + 1));
    }
    std::string text = "Hello  <s>world's 12345\r\n\n h\xC3\xA9\xE6\x97\xA5 "
                       "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD\t<a> \xFF\xE2\x80x";
    text += files[0].substr(files[0].size() - std::min<size_t>(files[0].size(), 64));
    try {
        const auto tokenizer = keel::parse_tokenizer({files[0], files[1], files[2], {}, {}});
        const auto ids = tokenizer->encode(text);
        for (const std::int32_t id : ids)
            if (tokenizer->kind(id) == keel::TokenKind::unused) std::abort();
        const std::string decoded = tokenizer->decode(ids);
        if (!keel::is_valid_utf8(decoded)) std::abort();
        keel::TextStream stream(*tokenizer, {"\x01never\x01"});
        std::string streamed;
        for (const std::int32_t id : ids)
            streamed += stream.push(id);
        streamed += stream.finish();
        if (!stream.stopped() && streamed != decoded) std::abort();
        (void)tokenizer->encode(text, {.add_special = false, .parse_special = false});
    } catch (const keel::Error &) {
    }
    return 0;
}
