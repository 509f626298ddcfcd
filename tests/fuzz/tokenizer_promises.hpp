#pragma once

#include "base/error.hpp"
#include "text/chat_template.hpp"
#include "text/text_stream.hpp"
#include "text/tokenizer/tokenizer.hpp"
#include "text/utf8.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

// Checks properties that every tokenizer must have: each id has a token, text is UTF-8, and
// streamed text equals decoded text. `extra` is text of the fuzzer. If a check fails, the program
// aborts.
inline void check_tokenizer_promises(const keel::Tokenizer &tokenizer, std::string_view extra) {
    std::string text = "Hello  <s>world's 12345\r\n\n h\xC3\xA9\xE6\x97\xA5 "
                       "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD\t<a> \xFF\xE2\x80x\xE2\x96\x81";
    text += extra;
    const auto ids = tokenizer.encode(text);
    for (const std::int32_t id : ids)
        if (tokenizer.kind(id) == keel::TokenKind::unused) std::abort();
    for (const keel::DecodeOptions options :
         {keel::DecodeOptions{}, keel::DecodeOptions{.skip_special = false, .continues = true}}) {
        const std::string decoded = tokenizer.decode(ids, options);
        if (!keel::is_valid_utf8(decoded)) std::abort();
        keel::TextStream stream(tokenizer, {"\x01never\x01"}, options);
        std::string streamed;
        for (const std::int32_t id : ids) streamed += stream.push(id);
        streamed += stream.finish();
        if (!stream.stopped() && streamed != decoded) std::abort();
    }
    (void)tokenizer.encode(text, {.add_special = false, .parse_special = false});
    const keel::TextPart parts[] = {{text, false}, {"<s>\n", true}, {extra, false}};
    (void)tokenizer.encode(parts, {.add_special = true, .continues = true});
}

// Checks that any template can be used with any tokenizer: it gives pieces or an error.
inline void check_chat_promises(const keel::FoundChatTemplate &found,
                                const keel::Tokenizer &tokenizer) {
    if (!found.has_template()) return;
    try {
        const keel::ChatTemplate chat = found.open();
        const keel::ChatMessage messages[] = {{keel::ChatRole::system, "system"},
                                              {keel::ChatRole::user, " \xFFhello\n"}};
        const auto pieces = chat.prompt(tokenizer, messages, "1 Jan 2026");
        (void)chat.encode(tokenizer, pieces, false);
        (void)chat.end_ids(tokenizer);
        (void)chat.stop_strings(tokenizer);
    } catch (const keel::Error &) {
        // the template is invalid or refuses the conversation
    }
}
