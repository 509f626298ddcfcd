#include "eval/ab/run/work_count.hpp"

#include <algorithm>
#include <cmath>

namespace keel::ab {
namespace {

// `each`: the tokens in the sampled documents. This sum is scaled to all documents. `once`: the
// tokens of the reference's second run. This sum is not scaled, because the second run takes only
// the first documents.
struct Sum {
    double each = 0, once = 0;
    void add(double of_each, double of_first) {
        each += of_each;
        once += of_first;
    }
    uint64_t total(double scale) const {
        return static_cast<uint64_t>(std::llround(each * scale + once));
    }
};

} // namespace

Cost::Row count_work(const PlannedTask &task, Protocol protocol, size_t sampled,
                     const Experiment &experiment, Arms &arms) {
    // per_document: the number of runs. capped: the number of runs with kv.max_mib.
    uint64_t per_document = 0, capped = 0;
    for (const Run &run : experiment.runs) {
        per_document += run.is_rerun ? 0 : run.seeds.size();
        capped += run.is_rerun || !run.config.kv.max_bytes() ? 0 : run.seeds.size();
    }
    Cost::Row row;
    row.task = task.task->name;
    row.protocol = protocol_of(task, protocol);
    row.documents = task.documents;
    row.runs = per_document;
    if (!task.items) {
        for (size_t d = 0; d < task.documents; ++d) {
            row.prefill_tokens +=
                static_cast<uint64_t>(task.task->at[d % task.task->at.size()]) * (per_document + 1);
            row.decode_tokens += static_cast<uint64_t>(task.task->decode) * (per_document + 1);
        }
        row.decode_steps = row.decode_tokens;
        return row;
    }
    Sum prefill, decode, steps, questions;
    // Units (prompts with their questions) take steps together. `together` is the number of tokens
    // that these units decode. `longest` is the number of tokens that the longest of these units
    // decodes.
    double together = 0, longest = 0;
    size_t members = 0;
    const auto runs = static_cast<double>(per_document);
    for (size_t d = 0; d < sampled; ++d) {
        const double again = d / task.at_once * task.at_once < first_reruns ? 1 : 0;
        // Counts the decode steps of the units that run together. When an answer ends, another
        // answer takes the free place in the batch. So at the end, the longest answer can run
        // alone.
        const auto part = [&] {
            const double n =
                std::max(std::ceil(together / static_cast<double>(task.at_once)), longest);
            steps.add(n * runs, n * again);
            together = longest = 0;
            members = 0;
        };
        for (const Unit &unit : task.items->units(d, protocol)) {
            // With kv.max_mib, the session cannot be copied. So each further question needs another
            // prefill of the prompt.
            const uint64_t further = unit.questions.size() > 1 ? unit.questions.size() - 1 : 0;
            const auto prompt = static_cast<double>(unit.prompt.size());
            prefill.add(prompt * static_cast<double>(arms.prefills() + capped * further),
                        prompt * again);
            const auto answer = [&](double tokens) {
                together += tokens;
                longest = std::max(longest, tokens);
                decode.add(tokens * runs, tokens * again);
            };
            answer(static_cast<double>(unit.continuation.size()));
            for (const Question &q : unit.questions) {
                const auto ask = static_cast<double>(q.ask.size());
                prefill.add(ask * runs, ask * again);
                answer(static_cast<double>(q.max_tokens));
            }
            questions.add(static_cast<double>(unit.questions.size()), 0);
            if (++members == task.at_once) part();
        }
        if ((d + 1) % task.at_once == 0 || d + 1 == sampled) part();
    }
    const double scale =
        static_cast<double>(task.documents) / static_cast<double>(std::max<size_t>(sampled, 1));
    row.prefill_tokens = prefill.total(scale);
    row.decode_tokens = decode.total(scale);
    row.decode_steps = steps.total(scale);
    row.questions = questions.total(scale);
    return row;
}

} // namespace keel::ab
