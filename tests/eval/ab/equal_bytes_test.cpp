// Tests of comparisons by the bytes of cache plus policy: at equal bytes, at the peak, and on the
// Pareto front.
#include "eval/ab/verdicts/equal_bytes.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace keel;
using test::contains;
using test::find_contrast;
using test::load_ab;
using test::made_header;
using test::made_item;
using test::warned;

TEST_CASE("at equal bytes, an arm between two budgets is interpolated item by item") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    const auto add = [&](const std::string &arm, const std::string &budget, uint64_t bytes,
                         double value) {
        for (int i = 0; i < 60; ++i) {
            ab::Item item =
                made_item(arm, budget, fmt::format("i{}", i), value + 0.01 * (i % 3), "nll");
            item.kv_bytes = bytes;
            item.policy_bytes = bytes / 10;
            item.peak_kv_bytes = arm == "q4cache" ? bytes : 8000 + bytes;
            records.emplace_back(item);
        }
    };
    add("full", "full", 8000, 3);
    add("window", "tokens:64", 1000, 3.8);
    add("window", "tokens:128", 2000, 3.4);
    add("window", "tokens:256", 4000, 3.2);
    add("q4cache", "full", 3000, 3.1);
    add("snapkv", "tokens:400", 6000, 3.0);
    ab::Header header = made_header();
    header.own_prefills = {{"q4cache", "full"}};
    const auto loaded = load_ab(folder, header, records);
    CHECK(loaded->summary.header.own_prefills == header.own_prefills);
    const ab::Contrast *c = find_contrast(loaded->summary.equal_bytes, "q4cache", "window", "nll");
    REQUIRE(c != nullptr);
    CHECK(c->at_bytes == 3000);
    CHECK(c->mean_b == Approx(3.3 + 0.01));
    CHECK(c->effect == Approx(-0.2));
    CHECK(c->verdict == ab::Verdict::exploratory); // comparisons at equal bytes are not planned
    CHECK(c->interval->high < 0);
    // For q4cache: the bytes while it was scored. For window: interpolated between its two budgets.
    CHECK(c->a_budget == "full");
    CHECK(c->a_peak_bytes == 3000);
    CHECK(c->b_budget == "tokens:128 to tokens:256");
    CHECK(c->b_peak_bytes == 11000);
    CHECK_FALSE(c->a_interpolated);
    CHECK(c->b_interpolated);
    CHECK(contains(verdict_line(*c), "q4cache where both hold 2.9 KiB against window at "
                                     "tokens:128 to tokens:256 (interpolated) on continuation "
                                     "nll: "));
    for (const ab::Contrast &one : loaded->summary.equal_bytes) {
        CHECK_FALSE(one.planned);
        CHECK_FALSE(one.p.has_value());
        CHECK(one.verdict == ab::Verdict::exploratory);
    }
    CHECK(contains(verdict_line(*c), "; at the peak 2.9 KiB against 10.7 KiB"));
    const std::string text = ab::summary_text(loaded->summary);
    CHECK(contains(
        text, "on continuation, both arms hold 2.9 KiB, but window at tokens:128 to tokens:256 "
              "held up to 10.7 KiB, 267% more than q4cache (prefill of its own) with 2.9 KiB"));
    CHECK(contains(text, "2.9 KiB, 10.7 KiB")); // the column of peaks
    // No budget of `window` reaches 6000 bytes, so the two arms are not compared.
    CHECK(find_contrast(loaded->summary.equal_bytes, "snapkv", "window", "nll") == nullptr);
    const auto apart = [&](const ab::Apart &one) { return one.a == "snapkv" && one.b == "window"; };
    const auto &list = loaded->summary.apart;
    CHECK(std::any_of(list.begin(), list.end(), apart));
    CHECK(contains(text, "not compared at equal bytes: snapkv at tokens:400 holds 5.9 KiB and "
                         "window at tokens:64 to tokens:256 holds 1000 B to 3.9 KiB on "
                         "continuation: 2.0 KiB (50%) apart"));
    // The text names the protocol if there is one.
    ab::Apart other = list.front();
    other.protocol = "question_blind";
    CHECK(contains(apart_text(other), " on continuation (question_blind): "));
    // On the front are the cheapest cell, and each cell that is better than all cheaper cells.
    for (const ab::CellSummary &cell : loaded->summary.cells)
        CHECK(cell.on_front == (cell.cell->arm != "full" && cell.cell->budget != "tokens:256"));
    // At the peak, memory is saved only with a smaller type of the cache.
    for (const ab::CellSummary &cell : loaded->summary.cells)
        CHECK(cell.on_peak_front == (cell.cell->arm == "q4cache" || cell.cell->arm == "snapkv"));
}

TEST_CASE("equal bytes are measured bytes of cache and policy, not bytes that follow from slots") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    const auto add = [&](const std::string &arm, const std::string &budget, uint64_t bytes,
                         double slots, double value) {
        for (int i = 0; i < 60; ++i) {
            ab::Item item =
                made_item(arm, budget, fmt::format("i{}", i), value + 0.01 * (i % 3), "nll");
            item.kv_bytes = bytes;
            item.policy_bytes = arm == "snapkv" ? 1000 : 0;
            item.peak_kv_bytes = bytes + 500;
            item.kept_slots = slots;
            records.emplace_back(item);
        }
    };
    // 512 slots of the reference are 8000 bytes, so 128 slots would be 2000 bytes. `window` and
    // `snapkv` keep equally many slots, but snapkv's own data makes it hold 3000 bytes.
    add("full", "full", 8000, 512, 3);
    add("window", "tokens:128", 2000, 128, 3.4);
    add("window", "tokens:256", 4000, 256, 3.2);
    add("snapkv", "tokens:128", 3000, 128, 3.1);
    // A q4_0 cache has all slots. Its bytes with block scales are 2300, not 8000 / 4 = 2000.
    add("q4cache", "full", 2300, 512, 3.3);
    const auto loaded = load_ab(folder, made_header(), records);
    const auto &equal = loaded->summary.equal_bytes;
    const ab::Contrast *policy = find_contrast(equal, "snapkv", "window", "nll");
    REQUIRE(policy != nullptr);
    CHECK(policy->at_bytes == 3000);
    CHECK(policy->a_peak_bytes == 3500);
    CHECK(policy->b_peak_bytes == 3500); // halfway between 2500 and 4500
    CHECK(policy->b_interpolated);
    CHECK(policy->mean_b == Approx(3.3 + 0.01));
    const ab::Contrast *quantized = find_contrast(equal, "q4cache", "window", "nll");
    REQUIRE(quantized != nullptr);
    CHECK(quantized->at_bytes == 2300);
    CHECK(quantized->a_peak_bytes == 2800);
    CHECK(quantized->mean_b == Approx(3.4 - 0.2 * 300 / 2000 + 0.01));
    for (const ab::CellSummary &one : loaded->summary.cells) {
        const ab::Cell &cell = *one.cell;
        if (cell.arm == "q4cache") CHECK(cell.kv_bytes == 2300);
        if (cell.arm == "snapkv") CHECK(cell.kv_bytes == 3000);
    }
}

TEST_CASE("the Pareto front keeps equal arms and leaves out arms that are worse") {
    using Points = std::vector<std::pair<double, double>>;
    CHECK(ab::pareto_front(Points{}, true).empty());
    CHECK(ab::pareto_front(Points{{1, 5}, {2, 5}, {2, 6}, {1, 5}}, true) ==
          std::vector<bool>{true, false, true, true});
    CHECK(ab::pareto_front(Points{{1, 5}, {2, 6}}, false) == std::vector<bool>{true, false});
}

TEST_CASE("there is a warning for an arm whose peak exceeds the reference's peak") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 12; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 1)); // this arm takes 8000 bytes
        ab::Item small = made_item("window", "tokens:128", name, 1);
        small.peak_kv_bytes = 8600;
        records.emplace_back(small);
        ab::Item large = made_item("snapkv", "tokens:128", name, 1);
        large.peak_kv_bytes = i == 3 ? 9000 : 8000;
        records.emplace_back(large);
    }
    const auto loaded = load_ab(folder, made_header(), records);
    CHECK(warned(loaded->summary, "the arm's peak was 8.8 KiB (cache and policy data), but the "
                                  "reference never held more than 7.8 KiB"));
    for (const ab::Warning &w : loaded->summary.warnings)
        if (contains(w.text, "peak was")) CHECK(w.arm == "snapkv");
}
