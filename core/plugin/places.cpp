#include "plugin/places.hpp"

#include <algorithm>

namespace keel {
namespace {

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool has_word(std::string_view text, std::string_view word) {
    if (word.empty()) return false;
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
            return true;
    }
    return false;
}

} // namespace

const SourceLocation &PluginPlaces::of(std::string_view message) const {
    const auto found = std::find_if(params.begin(), params.end(), [&](const auto &param) {
        return has_word(message, param.first);
    });
    return found == params.end() ? plugin : found->second;
}

std::string PluginPlaces::prefix(const SourceLocation &at) {
    return at.file.empty() ? std::string{} : to_string(at) + ": ";
}

} // namespace keel
