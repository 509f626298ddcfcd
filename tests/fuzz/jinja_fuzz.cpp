// Input: a chat template. Any input gives either a text or a keel::Error of one line, within the
// limits. The pieces of the text are valid UTF-8, so no piece begins inside a character.
#include "base/error.hpp"
#include "text/chat_prompt.hpp"
#include "text/jinja/json_value.hpp"
#include "text/utf8.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const keel::jinja::Value variables = keel::jinja::read_json(
        R"({"messages": [{"role": "system", "content": "Be kind."},
                         {"role": "user", "content": " hé<|x|> \n"},
                         {"role": "assistant", "content": "", "tool_calls":
                          [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]}],
            "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}],
            "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})",
        "variables");
    keel::jinja::Limits limits;
    limits.steps = 200'000; // so that an input takes milliseconds
    limits.bytes = 16 << 20;
    limits.output_bytes = 1 << 20;
    try {
        const keel::jinja::Template tree({reinterpret_cast<const char *>(data), size}, "t.jinja",
                                         limits);
        for (const keel::ChatPiece &piece : keel::chat_pieces(tree.render(variables.dict(), 0)))
            if (piece.text.empty() || !keel::is_valid_utf8(piece.text)) std::abort();
    } catch (const keel::Error &error) {
        const std::string_view message = error.what();
        if (!message.starts_with("t.jinja:") || message.find('\n') != std::string_view::npos)
            std::abort();
    }
    return 0;
}
