#include "eval/ab/run/item_context.hpp"

#include "eval/ab/run/run_progress.hpp"

#include <chrono>
#include <fmt/format.h>

namespace keel::ab {

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Error error_at(const Place &place, const std::string &item, ErrorKind kind,
               const std::string &what) {
    return {kind, fmt::format("task '{}': arm '{}' at budget {}, item {}: {}", place.task,
                              place.arm, place.budget, item, what)};
}

Arms::Opened ItemContext::open(size_t run, uint64_t seed, const Member &member) {
    const double begin = steady_seconds();
    Arms::Opened opened = arms.open(run, seed, member.document, member.unit.prompt);
    paces[run].reading += steady_seconds() - begin;
    return opened;
}

void ItemContext::take_in(const PlannedTask &task, const Place &place, size_t run,
                          std::span<Session *const> sessions, std::span<const int32_t> ids,
                          std::span<const std::string *const> items, SessionBatch::Read read) {
    check_cancelled(options);
    if (task.at_once == 1) {
        at_arm(place, *items.front(), [&] { sessions.front()->decode(ids.front()); });
        return;
    }
    const auto outcomes = arms.batch(run)->decode(sessions, ids, read);
    for (size_t i = 0; i < outcomes.size(); ++i) {
        const SessionBatch::Outcome &outcome = outcomes[i];
        if (outcome.kind == SessionBatch::Outcome::Kind::done) continue;
        throw error_at(place, *items[i], outcome.error().kind(), outcome.detail);
    }
}

bool ItemContext::draws(const Place &place, size_t run, size_t document) const {
    const Run &r = experiment.runs[run];
    return static_cast<int64_t>(document) < experiment.config.maps &&
           place.seed == r.seeds.front() && !r.is_rerun;
}

void ItemContext::write_prompt(const Place &place, const std::string &item,
                               std::span<const int32_t> ids) const {
    if (place.arm != experiment.reference().arm) return;
    Prompt prompt;
    static_cast<Place &>(prompt) = place;
    prompt.item = item;
    for (const int32_t id : ids.first(std::min(ids.size(), most_prompt_tokens)))
        prompt.tokens.push_back(arms.tokenizer().decode(
            std::span(&id, 1), DecodeOptions{.skip_special = false, .continues = true}));
    results.write(prompt);
}

} // namespace keel::ab
