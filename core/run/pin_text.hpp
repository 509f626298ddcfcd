#pragma once

#include "kv/evict/eviction_log.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace keel {

// The tokens of a prompt that contain `text`: the shortest run that covers it. The text must occur
// exactly once in the decoded prompt (special tokens decode to nothing). Otherwise throws
// Error(usage), which quotes the text and begins with `key`: "generation.pin".
TokenRun find_text(const Tokenizer &tokenizer, std::span<const int32_t> prompt,
                   std::string_view text, std::string_view key);

} // namespace keel
