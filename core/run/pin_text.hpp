#pragma once

#include "kv/evict/eviction_log.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace keel {

// Returns the tokens of a prompt that contain `text`: the shortest run of tokens that covers the
// text. The text must occur exactly once in the decoded prompt (special tokens decode to nothing).
// Otherwise throws Error(usage), which quotes the text and begins with `key`, such as
// "generation.pin".
TokenRun find_text(const Tokenizer &tokenizer, std::span<const int32_t> prompt,
                   std::string_view text, std::string_view key);

} // namespace keel
