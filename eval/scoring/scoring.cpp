#include "eval/scoring/scoring.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr int64_t default_context = 512;
constexpr uint64_t logits_bytes = uint64_t{64} << 20;
constexpr int64_t largest = int64_t{1} << 30;

void in_range(const char *option, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        throw_error(ErrorKind::usage, "{}: expected {} to {}, found {}", option, low, high, value);
}

// Returns the token that begins a text, if the tokenizer's files ask for this token.
std::optional<int32_t> begin_token(const Tokenizer &tokenizer) {
    return tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
}

// Returns the first `wanted` tokens of the text; 0 means all tokens. Of a large text, only the
// needed part is tokenized.
std::vector<int32_t> first_tokens(const Tokenizer &tokenizer, std::string_view text,
                                  int64_t wanted) {
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    if (wanted <= 0) return tokenizer.encode(text, plain);
    std::vector<int32_t> ids;
    for (size_t bytes = static_cast<size_t>(wanted) * 8;; bytes *= 4) {
        ids = tokenizer.encode(text.substr(0, bytes), plain);
        // The last tokens of a shortened text can differ from the tokens of the whole text. So the
        // function tokenizes more text than it needs.
        constexpr int64_t margin = 64;
        if (bytes >= text.size() || std::ssize(ids) >= wanted + margin) break;
    }
    if (std::ssize(ids) > wanted) ids.resize(static_cast<size_t>(wanted));
    return ids;
}

} // namespace

uint32_t scoring_rows(int64_t vocab_size) {
    const uint64_t row = static_cast<uint64_t>(std::max<int64_t>(vocab_size, 1)) * sizeof(float);
    return static_cast<uint32_t>(std::clamp<uint64_t>(logits_bytes / row, 1, 4096));
}

ScoringText scoring_text(const Pipeline &pipeline, std::string_view text,
                         const ScoringOptions &options) {
    const Tokenizer *tokenizer = pipeline.tokenizer();
    if (tokenizer == nullptr)
        throw_error(ErrorKind::usage,
                    "{}: the model has no tokenizer, but scoring a text needs one",
                    pipeline.source().path());
    in_range("--max-tokens", options.max_tokens, 0, largest);
    ScoringText out;
    out.ids = first_tokens(*tokenizer, text, options.max_tokens);
    if (options.bos) out.bos = begin_token(*tokenizer);
    if (out.ids.size() + (out.bos ? 1 : 0) < 2)
        throw_error(ErrorKind::input, "the text has {}; expected at least {}",
                    counted(out.ids.size(), "token"), out.bos ? 1 : 2);
    return out;
}

ScoringWalk::ScoringWalk(std::vector<Session *> sessions, const ScoringText &text,
                         const ScoringOptions &options)
    : sessions_(std::move(sessions)), text_(text), options_(options) {
    fill_in();
    check();
    make_windows();
    for (const ScoreWindow &w : windows_)
        total_ += w.end - 1 - w.begin + static_cast<int64_t>(begin_tokens());
    rows_ = options_.step;
    for (const Session *session : sessions_) {
        Pipeline &p = const_cast<Session *>(session)->pipeline();
        rows_ = std::min<int64_t>({rows_, p.engines().step_tokens(),
                                   static_cast<int64_t>(scoring_rows(p.model().vocab_size))});
    }
}

void ScoringWalk::fill_in() {
    int64_t held = largest; // limit for the tokens in a cache without evictions
    bool acts_at_end_only = true;
    for (Session *session : sessions_) {
        const PolicySetup &plan = session->pipeline().policy_setup();
        if (plan.keeps_all()) held = std::min(held, session->pipeline().context());
        acts_at_end_only = acts_at_end_only && (plan.keeps_all() || plan.prefill_only());
    }
    if (options_.context == 0 && options_.prefix == 0)
        options_.context = std::min(default_context, std::max<int64_t>(held, 2));
    if (options_.stride == 0 && options_.prefix == 0)
        options_.stride = std::max<int64_t>(options_.context / 2, 1);
    constexpr int64_t many = largest;
    if (options_.step == 0) options_.step = options_.prefix == 0 || acts_at_end_only ? many : 1;
}

void ScoringWalk::check() const {
    const ScoringOptions &o = options_;
    in_range("--step", o.step, 1, largest);
    int64_t longest = 0;
    if (o.prefix > 0) {
        if (o.context != 0 || o.stride != 0)
            throw_error(ErrorKind::usage, "windows (--window, --stride) and places (--prefix, "
                                          "--continuation) exclude each other; use one of them");
        in_range("--prefix", o.prefix, 1, largest);
        in_range("--continuation", o.continuation, 1, largest);
        in_range("--places", o.places, 1, 1'000'000);
        longest = o.prefix + o.continuation;
    } else {
        if (o.continuation != 0)
            throw_error(ErrorKind::usage, "--continuation {} needs a prefix; set --prefix",
                        o.continuation);
        in_range("--window", o.context, 2, largest);
        if (o.stride < 1 || o.stride > o.context)
            throw_error(
                ErrorKind::usage,
                "--stride: expected 1 to {} (the length of a window), found {}; a longer stride "
                "would leave tokens between the windows unscored",
                o.context, o.stride);
        longest = std::min<int64_t>(o.context, std::ssize(text_.ids) - 1 +
                                                   static_cast<int64_t>(begin_tokens()));
    }
    for (Session *session : sessions_) {
        Pipeline &p = session->pipeline();
        if (p.policy_setup().keeps_all() && longest > p.context()) {
            const std::string what =
                o.prefix > 0 ? fmt::format("a prefix of {} and a continuation of {} tokens",
                                           o.prefix, o.continuation)
                             : fmt::format("a window of {} tokens", o.context);
            const std::string text = o.prefix > 0 || longest == o.context
                                         ? std::string{}
                                         : fmt::format(" (this text fills {} of them)", longest);
            const std::string cure =
                p.model().max_positions > p.context()
                    ? fmt::format(", or raise model.context (the model supports {})",
                                  p.model().max_positions)
                    : std::string{};
            throw_error(ErrorKind::usage,
                        "{}{} does not fit the cache of {}, which holds {}; use fewer tokens{}",
                        what, text, printable(p.source().path(), 400),
                        counted(static_cast<uint64_t>(p.context()), "token"), cure);
        }
    }
}

void ScoringWalk::make_windows() {
    const auto n = std::ssize(text_.ids);
    const auto front = static_cast<int64_t>(begin_tokens());
    const ScoringOptions &o = options_;
    if (o.prefix > 0) {
        // The first token of the continuation is read but not scored.
        const int64_t before = o.prefix - front + 1;
        const int64_t length = before + o.continuation;
        if (length > n)
            throw_error(
                ErrorKind::usage,
                "the text has {} tokens, but a prefix of {} and a continuation of {} need {}", n,
                o.prefix, o.continuation, length);
        const int64_t places = std::min(o.places, n / length);
        for (int64_t i = 0; i < places; ++i) {
            const int64_t begin = places == 1 ? 0 : (n - length) * i / (places - 1);
            windows_.push_back({begin, begin + before, begin + length});
        }
        return;
    }
    // In a window, the session reads context - front tokens of the text. The last token to score is
    // the token after these tokens.
    const int64_t held = o.context - front;
    int64_t scored = 1 - front;
    for (int64_t begin = 0; scored < n; begin += o.stride) {
        const int64_t end = std::min(begin + held + 1, n);
        if (end > scored) windows_.push_back({begin, scored, end});
        scored = std::max(scored, end);
    }
}

int64_t ScoringWalk::scored_tokens() const {
    int64_t n = 0;
    for (const ScoreWindow &w : windows_) n += w.tokens();
    return n;
}

void ScoringWalk::run(const OnRow &on_row, const OnWindow &on_window) {
    for (const ScoreWindow &window : windows_) {
        walk(window, on_row);
        on_window(window);
    }
}

ScoringWalk::Feed ScoringWalk::feed_of(const ScoreWindow &window) const {
    Feed feed;
    if (text_.bos) feed.ids.push_back(*text_.bos);
    feed.ids.insert(feed.ids.end(), text_.ids.begin() + window.begin,
                    text_.ids.begin() + window.end - 1);
    const auto front = static_cast<int64_t>(begin_tokens());
    feed.first = window.begin + 1 - front;
    feed.prompt = static_cast<size_t>(window.scored - feed.first);
    feed.has_prompt = options_.step == 1 || options_.prefix > 0;
    // The prompt needs at least one token, because a session cannot decode into an empty cache.
    feed.scores_prompt = feed.prompt == 0 && feed.has_prompt;
    if (feed.scores_prompt) feed.prompt = 1;
    return feed;
}

void ScoringWalk::walk(const ScoreWindow &window, const OnRow &on_row) {
    const Feed feed = feed_of(window);
    auto at = static_cast<int64_t>(feed.prompt);
    for (Session *session : sessions_) {
        session->reset();
        const auto first = std::span(feed.ids).first(feed.prompt);
        const uint32_t rows = feed.scores_prompt ? 1 : 0;
        if (feed.has_prompt) {
            session->prefill(first, true, rows);
        } else {
            session->take_in(first, rows);
        }
    }
    advance(at);
    if (feed.scores_prompt) give_rows(1, feed.first, window.end, on_row);
    while (at < std::ssize(feed.ids)) {
        const int64_t n = feed_rows(feed.ids, at);
        give_rows(n, feed.first + at, window.end, on_row);
        at += n;
        advance(n);
    }
}

// Feeds the next tokens. Each step takes as many tokens as all sessions allow. Returns the number
// of tokens fed.
int64_t ScoringWalk::feed_rows(std::span<const int32_t> ids, int64_t begin) {
    const int64_t left = std::ssize(ids) - begin;
    int64_t n = std::min(left, rows_);
    if (options_.step == 1) {
        for (Session *session : sessions_) session->decode(ids[static_cast<size_t>(begin)]);
        return 1;
    }
    for (Session *session : sessions_)
        n = std::min(n, std::max<int64_t>(session->cache().next_chunk(n, n), 1));
    const auto piece = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    for (Session *session : sessions_) session->take_in(piece, static_cast<uint32_t>(n));
    return n;
}

void ScoringWalk::give_rows(int64_t n, int64_t target, int64_t end, const OnRow &on_row) {
    if (target + n > end)
        throw_error(ErrorKind::internal, "scoring went past the end of its window");
    std::vector<std::span<const float>> all, rows(sessions_.size());
    for (Session *session : sessions_) {
        if (session->pipeline().host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
        all.push_back(session->logits());
        if (std::ssize(all.back()) != n * session->pipeline().model().vocab_size)
            throw_error(ErrorKind::internal, "scoring expected {} rows of logits, found {} numbers",
                        n, all.back().size());
    }
    for (int64_t i = 0; i < n; ++i) {
        for (size_t s = 0; s < all.size(); ++s) {
            const size_t vocab = all[s].size() / static_cast<size_t>(n);
            rows[s] = all[s].subspan(static_cast<size_t>(i) * vocab, vocab);
        }
        on_row(target + i, rows);
    }
}

void ScoringWalk::advance(int64_t tokens) {
    done_ += tokens;
    for (Session *session : sessions_) {
        if (session->pipeline().host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
    }
    if (options_.progress)
        options_.progress("scoring", static_cast<uint64_t>(done_), static_cast<uint64_t>(total_));
}

} // namespace keel
