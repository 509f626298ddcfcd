#include "eval/compare/report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

std::string number(double value) { return fmt::format("{:.2g}", value); }

std::string rows_text(const std::vector<CompareRow> &rows) {
    size_t part = 4, op = 2;
    for (const CompareRow &row : rows) {
        part = std::max(part, row.part.size());
        op = std::max(op, row.op.size());
    }
    std::string out =
        fmt::format("{:<{}}  {:<{}}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}  {:>6}  {}\n", "part", part,
                    "op", op, "calls", "relative", "worst", "bound", "of bound", "beyond", "where");
    for (const CompareRow &row : rows) {
        out += fmt::format(
            "{:<{}}  {:<{}}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}  {:>6}  {}", row.part, part, row.op,
            op, row.calls, number(row.relative()), number(row.worst), number(row.bound),
            std::isfinite(row.ratio) ? fmt::format("{:.1f}%", 100 * row.ratio) : "inf", row.beyond,
            row.where);
        out.erase(out.find_last_not_of(' ') + 1);
        out += '\n';
    }
    return out;
}

std::string layers_text(const CompareReport &r) {
    std::string out = "\nresidual stream, each pipeline with its own numbers (relative: root mean "
                      "square of the differences)\n";
    out += fmt::format("{:<9}  {:>8}  {:>8}\n", "after", "relative", "largest");
    for (const CompareLayer &l : r.layers)
        out += fmt::format("{:<9}  {:>8}  {:>8}\n",
                           l.layer < 0 ? "embedding" : fmt::format("layer {}", l.layer),
                           number(l.relative()), number(l.largest));
    return out;
}

std::string finding_text(const CompareReport &r) {
    const CompareFinding &f = *r.finding;
    std::string out = fmt::format("BEYOND ITS BOUND, the first of {} calls: {} ({}), {}\n",
                                  r.beyond, f.label, f.op, f.step);
    out += fmt::format("  {} {}: {} against {}: error {}, bound {}\n", f.tensor, f.place, f.a, f.b,
                       number(f.error), number(f.bound));
    out += fmt::format("  kernels: {} against {}\n", f.kernel_a, f.kernel_b);
    if (!f.saved.empty()) out += fmt::format("  the op's inputs are in {}\n", f.saved.string());
    return out;
}

// JSON has no infinity, so an infinite number becomes null.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

} // namespace

std::string compare_table(const CompareReport &r) {
    std::string out = fmt::format("first:  {}\nsecond: {}\n{} tokens, {} ops\n\n", r.first,
                                  r.second, r.tokens, r.ops);
    if (r.is_across_dtypes) {
        out.pop_back();
        out += fmt::format(
            "the first has {}; the second {}: most of the differences come from these dtypes, so "
            "the bounds are wide\n\n",
            r.dtypes_first, r.dtypes_second);
    }
    out += rows_text(r.rows);
    if (!r.layers.empty()) out += layers_text(r);
    out += fmt::format(
        "\nlogits, each pipeline with its own numbers, {} row{}: largest difference {}, "
        "mean KL {}, largest KL {}, same most likely token in {} of {}\n",
        r.logits.rows, r.logits.rows == 1 ? "" : "s", number(r.logits.max_difference),
        number(r.logits.mean_kl), number(r.logits.max_kl), r.logits.same_top, r.logits.rows);
    if (r.passed()) return out + "every op is within its bound\n";
    return out + finding_text(r);
}

Json compare_json(const CompareReport &r) {
    Json rows = Json::array();
    for (const CompareRow &row : r.rows) {
        rows.push_back({{"part", row.part},
                        {"op", row.op},
                        {"kernels", {row.kernel_a, row.kernel_b}},
                        {"calls", row.calls},
                        {"relative", number_json(row.relative())},
                        {"worst_error", number_json(row.worst)},
                        {"bound", row.bound},
                        {"of_bound", number_json(row.ratio)},
                        {"beyond", row.beyond},
                        {"where", row.where}});
    }
    Json layers = Json::array();
    for (const CompareLayer &l : r.layers)
        layers.push_back({{"layer", l.layer},
                          {"relative", number_json(l.relative())},
                          {"largest", number_json(l.largest)}});
    Json finding = nullptr;
    if (r.finding) {
        const CompareFinding &f = *r.finding;
        finding = {{"step", f.step},
                   {"label", f.label},
                   {"layer", f.layer ? Json(*f.layer) : Json(nullptr)},
                   {"op", f.op},
                   {"kernels", {f.kernel_a, f.kernel_b}},
                   {"tensor", f.tensor},
                   {"place", f.place},
                   {"values", {number_json(f.a), number_json(f.b)}},
                   {"error", number_json(f.error)},
                   {"bound", f.bound},
                   {"saved", f.saved.empty() ? Json(nullptr) : Json(f.saved.string())}};
    }
    return {{"passed", r.passed()},
            {"first", r.first},
            {"second", r.second},
            {"dtypes", {r.dtypes_first, r.dtypes_second}},
            {"tokens", r.tokens},
            {"ops", r.ops},
            {"beyond", r.beyond},
            {"finding", std::move(finding)},
            {"rows", std::move(rows)},
            {"layers", std::move(layers)},
            {"logits",
             {{"rows", r.logits.rows},
              {"max_difference", number_json(r.logits.max_difference)},
              {"mean_kl", number_json(r.logits.mean_kl)},
              {"max_kl", number_json(r.logits.max_kl)},
              {"same_top", r.logits.same_top}}}};
}

} // namespace keel
