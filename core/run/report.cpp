#include "run/report.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"

#include <algorithm>

namespace keel {
namespace {

// Returns the memory of the sequence: "cache 4.2 MiB + policy 0.1 MiB (peak 10.1 MiB, 5.8 MiB
// freed)".
std::string held_text(const SessionStats &s) {
    std::string text = "cache " + format_bytes(s.kv_bytes);
    if (s.policy_peak_bytes > 0) text += " + policy " + format_bytes(s.policy_bytes);
    text += " (peak " + format_bytes(s.held_peak_bytes);
    if (s.freed_bytes > 0) text += fmt::format(", {} freed", format_bytes(s.freed_bytes));
    return text + ")";
}

} // namespace

std::string closing_line(const GenerateResult &r) {
    const SessionStats &s = r.stats;
    const double tokens = static_cast<double>(std::max<uint64_t>(s.decode_tokens, 1));
    std::string line;
    if (!r.ids.empty())
        line = fmt::format("time to first token {:.0f} ms | ", 1000 * r.first_token_seconds);
    line += fmt::format("prefill {}, {:.1f} tokens/s | decode {}, {:.1f} tokens/s | ",
                        counted(s.prefill_tokens, "token"), s.prefill_rate(),
                        counted(s.decode_tokens, "token"), s.decode_rate());
    line += held_text(s) + " | " + counted(s.evictions, "eviction");
    if (s.evictions > 0)
        line += fmt::format(" of {}, {:.1f} ms", counted(s.evicted_tokens, "token"),
                            1000 * s.eviction_seconds);
    line += fmt::format(" | {:.1f} submits, {:.1f} waits per token",
                        static_cast<double>(s.decode_stream.submits) / tokens,
                        static_cast<double>(s.decode_stream.waits) / tokens);
    if (s.guessed_tokens > 0)
        line += fmt::format(" | right guesses: {} of {}", s.right_guesses, s.guessed_tokens);
    if (s.ahead_steps + s.discarded_steps > 0) {
        line +=
            fmt::format(" | decode steps queued ahead: {} of {}", s.ahead_steps, s.decode_tokens);
        if (s.discarded_steps > 0) line += fmt::format(", {} more discarded", s.discarded_steps);
    }
    if ((s.replay_parts > 0 && s.decode_tokens > 0) || s.decode_stream.replays > 0) {
        // With a hybrid, the number of recorded steps can exceed `steps`. A warm-up runs more
        // steps, and the number of parts changes during the run.
        const uint64_t steps = (s.decode_tokens + s.discarded_steps) * s.replay_parts;
        const std::string of = s.moves.empty() && s.decode_stream.replays <= steps
                                   ? fmt::format(" of {}", steps)
                                   : ", on all backends";
        line += fmt::format(" | decode steps replayed: {}{}{}", s.decode_stream.replays, of,
                            s.no_replay.empty() ? "" : " (" + s.no_replay + ")");
    }
    for (const BackendMove &move : s.moves) line += "\nswitch: " + move_text(move);
    return line;
}

} // namespace keel
