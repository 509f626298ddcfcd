#include "eval/ab/run/document_runner.hpp"

#include <algorithm>

namespace keel::ab {

void DocumentRunner::run(const PlannedTask &task, Protocol protocol, size_t first, size_t count) {
    const std::string name = protocol_of(task, protocol);
    std::vector<Member> members;
    for (size_t d = first; d < first + count; ++d) {
        for (Unit &unit : task.items->units(d, protocol))
            members.push_back({members.size() % task.at_once, d, first, std::move(unit)});
    }
    progress_.begin(count);
    const size_t parts = (members.size() + task.at_once - 1) / task.at_once;
    for (size_t p = 0; p < parts; ++p) {
        progress_.begin_part(p, parts);
        const size_t begin = p * task.at_once;
        run_members(
            task, name,
            std::span(members).subspan(begin, std::min(task.at_once, members.size() - begin)));
    }
    progress_.end();
}

void DocumentRunner::run_members(const PlannedTask &task, const std::string &protocol,
                                 std::span<const Member> members) {
    Results &results = context_.results;
    for (const Member &member : members) {
        if (member.unit.split_changes_tokens && member.document == 0)
            results.write_once(
                Warning{"", "", protocol, task.task->name,
                        "context and question have other tokens if they are encoded as one text; "
                        "the experiment encodes them separately"});
    }
    continuations_.begin();
    uint64_t done = 0;
    for (size_t r = 0; r < context_.experiment.runs.size(); ++r) {
        const Run &run = context_.experiment.runs[r];
        for (const uint64_t seed : run.seeds) {
            // The measurement of the cost takes one seed, because all seeds take the same time.
            if (!results.is_open() && seed != run.seeds.front()) continue;
            const Place place = {run.arm, run.budget, protocol, task.task->name, seed};
            if (run.is_rerun && !results.reruns(place, members.front().first)) continue;
            const uint64_t written = results.written();
            const double begin = steady_seconds();
            if (task.has_questions()) {
                questions_.run(task, place, r, members);
            } else {
                continuations_.run(task, place, r, members);
            }
            context_.paces[r].all += steady_seconds() - begin;
            if (results.written() == written) progress_.found();
            progress_.step(++done);
        }
    }
}

void DocumentRunner::warn_of_short_answers(const PlannedTask &task) {
    constexpr size_t sampled = 8;
    const Tokenizer &tokenizer = context_.arms.tokenizer();
    const EncodeOptions plain{.add_special = false, .parse_special = false, .continues = true};
    const auto is_short = [&](const Question &q) {
        return q.max_tokens == 1 ||
               std::any_of(q.expected.begin(), q.expected.end(), [&](const std::string &e) {
                   return tokenizer.encode(" " + e, plain).size() <= 1;
               });
    };
    for (size_t d = 0; d < std::min(task.documents, sampled); ++d) {
        for (const Unit &unit : task.items->units(d, Protocol::whole_prompt)) {
            if (std::none_of(unit.questions.begin(), unit.questions.end(), is_short)) continue;
            context_.results.write_once(Warning{
                "", "", protocol_name(Protocol::whole_prompt), task.task->name,
                "some expected answers have only one token; under whole_prompt, the model chooses "
                "the first token before the eviction, so these answers do not measure the policy; "
                "use "
                "question_blind or query_aware for them"});
            return;
        }
    }
}

} // namespace keel::ab
