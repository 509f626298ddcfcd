#include "eval/ab/report/cost.hpp"

#include "eval/page/text_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace keel::ab {

using Json = nlohmann::ordered_json;

Json cost_json(const Experiment &e, const Cost &cost) {
    Json arms = Json::array(), tasks = Json::array();
    for (size_t r = 0; r < e.runs.size(); ++r) {
        const Run &run = e.runs[r];
        if (!run.is_rerun)
            arms.push_back({{"arm", run.arm},
                            {"budget", run.budget},
                            {"seeds", run.seeds},
                            {"estimated_seconds", cost.run_seconds[r]}});
    }
    for (const Cost::Row &row : cost.rows) {
        tasks.push_back({{"task", row.task},
                         {"protocol", row.protocol},
                         {"documents", row.documents},
                         {"questions", row.questions},
                         {"runs", row.runs},
                         {"prefill_tokens", row.prefill_tokens},
                         {"decode_tokens", row.decode_tokens},
                         {"decode_steps", row.decode_steps},
                         {"estimated_seconds", row.seconds}});
    }
    return {{"config_hash", e.hash},
            {"reference", e.config.reference},
            {"arms", std::move(arms)},
            {"tasks", std::move(tasks)},
            {"prefill_tokens", cost.prefill_tokens},
            {"decode_tokens", cost.decode_tokens},
            {"batch", cost.batch},
            {"prompts", e.form.description()},
            {"estimated_seconds", cost.seconds},
            {"measured_seconds", cost.measured_seconds},
            {"output", e.config.output.string()}};
}

std::string cost_text(const Experiment &e, const Cost &cost) {
    TableRows rows = {{"arm", "budget", "seeds", "about", "differs from the base by"}};
    for (size_t r = 0; r < e.runs.size(); ++r) {
        const Run &run = e.runs[r];
        if (run.is_rerun) continue;
        std::string difference;
        for (size_t i = 0; i < e.config.arms.size(); ++i) {
            if (e.config.arms[i].name == run.arm) difference = e.differences[i];
        }
        rows.push_back({run.arm, run.budget, fmt::format("{}", fmt::join(run.seeds, ",")),
                        duration_text(cost.run_seconds[r]), difference});
    }
    std::string out = left_table(rows) + "\n";
    rows = {{"task", "protocol", "documents", "questions", "runs of each", "tokens to prefill",
             "to decode", "in steps", "about"}};
    for (const Cost::Row &row : cost.rows) {
        rows.push_back({row.task, row.protocol.empty() ? "-" : row.protocol,
                        fmt::format("{}", row.documents), fmt::format("{}", row.questions),
                        fmt::format("{}", row.runs), fmt::format("{}", row.prefill_tokens),
                        fmt::format("{}", row.decode_tokens), fmt::format("{}", row.decode_steps),
                        duration_text(row.seconds)});
    }
    out += left_table(rows);
    const std::string together = cost.batch > 1 ? fmt::format(", {} at once", cost.batch) : "";
    return out +
           fmt::format(
               "\nabout {}: {} tokens to prefill, {} to decode{}. Measured just now in {}: every "
               "arm "
               "took one or two documents of each task{}\nprompts: {}\nreference {}, results go "
               "to {}\n",
               duration_text(cost.seconds), cost.prefill_tokens, cost.decode_tokens, together,
               duration_text(cost.measured_seconds),
               cost.counted_by_sample ? "; tokens are counted in the first documents" : "",
               e.form.description(), e.config.reference, e.config.output.string());
}

} // namespace keel::ab
