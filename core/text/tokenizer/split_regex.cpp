#include "text/tokenizer/split_regex.hpp"

#include "base/error.hpp"
#include "text/utf8.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>

namespace keel {

namespace {

constexpr std::size_t max_pattern_bytes = 64 * 1024;

std::string pcre2_message(int code) {
    std::array<PCRE2_UCHAR, 160> buffer{};
    if (pcre2_get_error_message(code, buffer.data(), buffer.size()) < 0)
        return fmt::format("PCRE2 error {}", code);
    return reinterpret_cast<const char *>(buffer.data());
}

} // namespace

RegexScratch::RegexScratch(std::size_t text_bytes)
    : match_data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      deadline_(std::chrono::steady_clock::now() + std::chrono::seconds(5) +
                std::chrono::microseconds(100) * static_cast<long long>(text_bytes)) {
    if (match_data_ == nullptr || context_ == nullptr) {
        pcre2_match_data_free(match_data_);
        pcre2_match_context_free(context_);
        throw std::bad_alloc();
    }
    pcre2_set_heap_limit(context_, 64 * 1024); // in KiB
}

RegexScratch::~RegexScratch() {
    pcre2_match_data_free(match_data_);
    pcre2_match_context_free(context_);
}

void SplitRegex::Free::operator()(pcre2_real_code_8 *code) const noexcept { pcre2_code_free(code); }

SplitRegex::SplitRegex(std::string_view pattern, Syntax syntax, std::string place)
    : place_(std::move(place)) {
    if (pattern.empty())
        throw_error(ErrorKind::input, "{}: the pattern is empty; it would split nothing", place_);
    if (pattern.size() > max_pattern_bytes)
        throw_error(ErrorKind::input, "{}: the pattern has {} bytes; at most {} are allowed",
                    place_, pattern.size(), max_pattern_bytes);
    const bool literal = syntax == Syntax::literal;
    const std::string translated =
        literal ? std::string(pattern) : oniguruma_to_pcre2(pattern, place_);

    std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free_8)> context(
        pcre2_compile_context_create(nullptr), &pcre2_compile_context_free_8);
    if (!context) throw std::bad_alloc();
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF); // the only newline of Oniguruma
    pcre2_set_parens_nest_limit(context.get(), 100);

    // The pattern is anchored, because find_all() moves the start position itself. So the match
    // limit applies to each start position, and the time limit is checked between two start
    // positions. The JIT accepts this option only at compile time.
    std::uint32_t options = PCRE2_UTF | PCRE2_ANCHORED;
    options |= literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              options, &error, &offset, context.get()));
    if (!code_)
        throw_error(ErrorKind::input, "{}: the pattern does not compile: {}", place_,
                    pcre2_message(error));
    // If there is no JIT (PCRE2 does not have it, or the system forbids writable code), the
    // interpreter gives the same matches.
    (void)pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

void SplitRegex::too_expensive() const {
    throw_error(ErrorKind::input,
                "{}: matching the pattern on this text takes more steps than any valid tokenizer "
                "needs; the file is damaged or malicious",
                place_);
}

bool SplitRegex::match_at(std::string_view subject, std::size_t offset, RegexScratch &scratch,
                          std::size_t &end) const {
    if ((++scratch.attempts_ & 0xFF) == 0 && std::chrono::steady_clock::now() > scratch.deadline_)
        too_expensive();
    // The interpreter counts each backtracking step over a long run of spaces, so the limit grows
    // with the text.
    const std::size_t limit = std::min<std::size_t>(10000 + 32 * subject.size(), 1U << 30);
    pcre2_set_match_limit(scratch.context_, static_cast<std::uint32_t>(limit));
    const auto match = [&](std::uint32_t options) {
        return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                           subject.size(), offset, PCRE2_NO_UTF_CHECK | options,
                           scratch.match_data_, scratch.context_);
    };
    int rc = match(0);
    // the interpreter's stack is on the heap
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
        too_expensive();
    if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (rc < 0)
        throw_error(ErrorKind::input, "{}: matching the pattern failed: {}", place_,
                    pcre2_message(rc));
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(scratch.match_data_);
    end = range[1];
    return true;
}

void SplitRegex::find_all(std::string_view subject, RegexScratch &scratch,
                          std::vector<TextRange> &matches) const {
    matches.clear();
    std::size_t at = 0;
    std::size_t last_end = subject.size() + 1; // no match yet
    while (at <= subject.size()) {
        std::size_t end = 0;
        if (match_at(subject, at, scratch, end) && !(end == at && at == last_end)) {
            matches.push_back({at, end});
            last_end = end;
            if (end > at) {
                at = end;
                continue;
            }
        }
        at += at < subject.size() ? utf8_length(subject, at) : 1;
    }
}

} // namespace keel
