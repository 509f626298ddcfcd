#include "run/backend_move.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

namespace keel {
namespace {

// Returns the reason of a move as text for users: the key that caused the move, or the event.
const char *reason_text(BackendMove::Why why) {
    switch (why) {
    case BackendMove::Why::phase: return "prefill and decode";
    case BackendMove::Why::tokens: return "switch.after_tokens";
    case BackendMove::Why::pressure: return "memory pressure";
    case BackendMove::Why::command: return "/switch";
    case BackendMove::Why::lost: break;
    }
    return "the device was lost";
}

} // namespace

const char *move_reason_name(BackendMove::Why why) {
    switch (why) {
    case BackendMove::Why::phase: return "phase";
    case BackendMove::Why::tokens: return "tokens";
    case BackendMove::Why::pressure: return "pressure";
    case BackendMove::Why::command: return "command";
    case BackendMove::Why::lost: break;
    }
    return "device_lost";
}

std::string move_text(const BackendMove &m) {
    std::string text =
        fmt::format("{} -> {} after {} tokens ({}): ", m.from, m.to, m.tokens, reason_text(m.why));
    if (!m.refused.empty()) return text + "refused, decode stays on " + m.from + ": " + m.refused;
    if (m.why == BackendMove::Why::lost)
        return text + fmt::format("{} tokens computed again in {:.1f} ms", m.reread_tokens,
                                  m.milliseconds);
    text += fmt::format("{} in {:.1f} ms", format_bytes(m.bytes), m.milliseconds);
    if (m.warmup_tokens > 0) text += fmt::format(", {} warm-up tokens", m.warmup_tokens);
    return text;
}

} // namespace keel
