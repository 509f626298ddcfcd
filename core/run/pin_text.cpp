#include "run/pin_text.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <vector>

namespace keel {

TokenRun find_text(const Tokenizer &tokenizer, std::span<const int32_t> prompt,
                   std::string_view text, std::string_view key) {
    std::string all;
    std::vector<size_t> ends; // for each token, the end of its bytes in `all`
    for (const int32_t id : prompt) {
        if (tokenizer.kind(id) != TokenKind::special) all += tokenizer.piece(id);
        ends.push_back(all.size());
    }
    const size_t at = text.empty() ? std::string::npos : all.find(text);
    if (at == std::string::npos) {
        throw_key_error(ErrorKind::usage, key,
                        "expected a part of the prompt, found '{}', which is not in the prompt",
                        printable(text, 120));
    }
    if (all.find(text, at + 1) != std::string::npos) {
        throw_key_error(ErrorKind::usage, key,
                        "expected a part that occurs once in the prompt, found '{}' more than "
                        "once; add more of the text around it",
                        printable(text, 120));
    }
    const auto token_at = [&](size_t byte) { // returns the number of the token that has this byte
        return static_cast<int32_t>(std::upper_bound(ends.begin(), ends.end(), byte) -
                                    ends.begin());
    };
    return {token_at(at), token_at(at + text.size() - 1) + 1};
}

} // namespace keel
