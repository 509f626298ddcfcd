#include "eval/ab/report/cost.hpp"

#include "eval/page/text_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace keel {

using Json = nlohmann::ordered_json;

Json ab_cost_json(const AbExperiment &e, const AbCost &cost) {
    Json arms = Json::array(), tasks = Json::array();
    for (const AbRun &run : e.runs) {
        if (!run.is_rerun)
            arms.push_back({{"arm", run.arm}, {"budget", run.budget}, {"seeds", run.seeds}});
    }
    for (const AbCost::Row &row : cost.rows) {
        tasks.push_back({{"task", row.task},
                         {"protocol", row.protocol},
                         {"documents", row.documents},
                         {"questions", row.questions},
                         {"runs", row.runs},
                         {"prefill_tokens", row.prefill_tokens},
                         {"decode_tokens", row.decode_tokens},
                         {"decode_steps", row.decode_steps}});
    }
    return {{"config_hash", e.hash},
            {"reference", e.config.reference},
            {"arms", std::move(arms)},
            {"tasks", std::move(tasks)},
            {"prefill_tokens", cost.prefill_tokens},
            {"decode_tokens", cost.decode_tokens},
            {"prefill_tokens_per_second", cost.prefill_rate},
            {"decode_tokens_per_second", cost.decode_rate},
            {"batch", cost.batch},
            {"batched_decode_tokens_per_second",
             cost.batch > 1 ? Json(cost.batch_rate) : Json(nullptr)},
            {"estimated_seconds", cost.seconds},
            {"output", e.config.output.string()}};
}

std::string ab_cost_text(const AbExperiment &e, const AbCost &cost) {
    TableRows rows = {{"arm", "budget", "seeds", "differs from the base by"}};
    for (const AbRun &run : e.runs) {
        if (run.is_rerun) continue;
        std::string difference;
        for (size_t i = 0; i < e.config.arms.size(); ++i) {
            if (e.config.arms[i].name == run.arm) difference = e.differences[i];
        }
        rows.push_back(
            {run.arm, run.budget, fmt::format("{}", fmt::join(run.seeds, ",")), difference});
    }
    std::string out = left_table(rows) + "\n";
    rows = {{"task", "protocol", "documents", "questions", "runs of each", "tokens to prefill",
             "to decode", "in steps"}};
    for (const AbCost::Row &row : cost.rows) {
        rows.push_back({row.task, row.protocol.empty() ? "-" : row.protocol,
                        fmt::format("{}", row.documents), fmt::format("{}", row.questions),
                        fmt::format("{}", row.runs), fmt::format("{}", row.prefill_tokens),
                        fmt::format("{}", row.decode_tokens), fmt::format("{}", row.decode_steps)});
    }
    out += left_table(rows);
    const std::string together =
        cost.batch > 1 ? fmt::format(", {} at once at {:.0f}", cost.batch, cost.batch_rate) : "";
    return out + fmt::format(
                     "\nabout {}: {} tokens to prefill at {:.0f} tokens/s, {} to decode at {:.0f} "
                     "tokens/s{} (measured just "
                     "now{})\nreference {}, results go to {}\n",
                     duration_text(cost.seconds), cost.prefill_tokens, cost.prefill_rate,
                     cost.decode_tokens, cost.decode_rate, together,
                     cost.counted_by_sample ? ", tokens from the first documents" : "",
                     e.config.reference, e.config.output.string());
}

} // namespace keel
