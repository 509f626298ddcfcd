#pragma once

#include "kv/evict/eviction_log.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace keel {

// Which of a prompt's tokens hold `text`: the least run of neighbours that covers it. The text has
// to stand in the prompt exactly once, as the tokens write it (special tokens count as nothing);
// else Error(usage) that quotes it and begins with `key`: "generation.pin".
TokenRun find_text(const Tokenizer &tokenizer, std::span<const int32_t> prompt,
                   std::string_view text, std::string_view key);

} // namespace keel
