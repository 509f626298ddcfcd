// The report's answer in plain words, its methods paragraph, its items and kept tokens.
#include "eval/ab/report/answer.hpp"
#include "eval/ab/report/methods.hpp"
#include "eval/ab/report/report.hpp"
#include "results.hpp"
#include "support/page_checks.hpp"

#include <fmt/ranges.h>

using namespace keel;
using test::contains;
using test::data_of;
using test::load_ab;
using test::made_header;
using test::made_item;

namespace {

// Hits of an arm in 200 documents: those from `first` to before `end`.
void add_hits(std::vector<ab::Record> &records, const std::string &arm, const std::string &budget,
              int end, int first = 0) {
    for (int i = 0; i < 200; ++i)
        records.emplace_back(
            made_item(arm, budget, fmt::format("i{:03}", i), i >= first && i < end ? 1 : 0));
}

std::string answer_of(const test::LoadedAb &loaded) {
    return fmt::format("{}", fmt::join(ab::answer_sentences(loaded.summary), "\n"));
}

} // namespace

TEST_CASE("the answer names what is better, equivalent, worse and undecided, with effects and "
          "bytes") {
    const test::TempFolder folder;
    ab::Header header = made_header();
    header.arms = {{"full", ""}, {"good", ""}, {"same", ""}, {"bad", ""}, {"near", ""}};
    header.statistics.margins = {{"hit", 0.05}};
    std::vector<ab::Record> records;
    add_hits(records, "full", "full", 120);
    add_hits(records, "good", "tokens:128", 180);
    add_hits(records, "same", "tokens:128", 120);
    add_hits(records, "bad", "tokens:128", 40);
    add_hits(records, "near", "tokens:128", 125, 15);
    const auto loaded = load_ab(folder, header, records);
    const auto sentences = ab::answer_sentences(loaded->summary);
    const std::string text = answer_of(*loaded);
    INFO(text);
    REQUIRE(sentences.size() == 4);
    CHECK(contains(sentences[0], "1 of 4 planned contrasts on passkey hit is better than full: "
                                 "good at tokens:128 (+0.300 ["));
    CHECK(contains(sentences[0], "; 2.0 KiB instead of 7.8 KiB)."));
    CHECK(contains(sentences[1], "is equivalent to full (no loss and no gain as large as the "
                                 "margin): same at tokens:128 (0 ["));
    CHECK(contains(sentences[2], "is worse than full: bad at tokens:128 (-0.400 ["));
    CHECK(contains(sentences[3], "is not distinguishable from full: near at tokens:128 (-0.050"));
    CHECK(contains(sentences[3], "; could see "));
}

TEST_CASE("if nothing was decided, the answer says so") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    add_hits(records, "full", "full", 120);
    CHECK(contains(answer_of(*load_ab(folder, made_header(), records)), "Nothing was decided"));
    add_hits(records, "window", "tokens:128", 118);
    const std::string text = answer_of(*load_ab(folder, made_header(), records));
    INFO(text);
    CHECK(contains(text, "Nothing was decided: 1 of 1 planned contrasts on passkey hit is not "
                         "distinguishable from full: window at tokens:128"));
    // Many arms: the first ones are named, the others counted.
    ab::Header header = made_header();
    for (int i = 0; i < 9; ++i) {
        header.arms.push_back({fmt::format("arm{}", i), ""});
        add_hits(records, fmt::format("arm{}", i), "tokens:128", 20);
    }
    const auto many = ab::answer_sentences(load_ab(folder, header, records)->summary);
    INFO(fmt::format("{}", fmt::join(many, "\n")));
    CHECK(many.size() <= 5);
    CHECK(contains(many[0],
                   "9 of 10 planned contrasts on passkey hit are worse than full, such as arm0"));
}

TEST_CASE("the methods paragraph names items, seeds, arms, methods, margins and the program") {
    const test::TempFolder folder;
    ab::Header header = made_header();
    header.version = "9.8.7";
    header.commit = "abcdef";
    header.model = "tiny (0123)";
    std::vector<ab::Record> records;
    add_hits(records, "full", "full", 120);
    add_hits(records, "window", "tokens:128", 100);
    ab::Item second = made_item("window", "tokens:128", "i000", 1);
    second.seed = 2;
    records.emplace_back(second);
    for (const char *arm : {"full", "window"})
        for (int i = 0; i < 30; ++i)
            records.emplace_back(made_item(arm, arm == std::string("full") ? "full" : "tokens:128",
                                           fmt::format("i{}", i), 3 + 0.1 * (i % 7), "nll"));
    const auto loaded = load_ab(folder, header, records);
    const ab::Methods methods = ab::methods_of(loaded->table, loaded->summary);
    const std::string text = fmt::format("{}", fmt::join(methods.paragraphs, "\n"));
    INFO(text);
    for (const char *part :
         {"tiny (0123)", "Cache budgets: full, tokens:128", "passkey (200 items in 200 documents)",
          "with 2 seeds", "Tango 1998", "bootstrap-t over documents (1000 resamples, seed 1",
          "One contrast was planned", "Holm's method (1979)", "margins: hit 1 point",
          "Keel 9.8.7 (abcdef)", "config hash 0123456789abcdef"})
        CHECK(contains(text, part));
    CHECK(contains(fmt::format("{}", fmt::join(methods.references, "\n")), "Holm, S. (1979)"));
    CHECK_FALSE(contains(fmt::format("{}", fmt::join(methods.references, "\n")), "Yuen"));
}

TEST_CASE("the page holds every item's number, the pairs of a contrast, and the kept tokens") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    add_hits(records, "full", "full", 120);
    add_hits(records, "window", "tokens:128", 100);
    ab::Prompt prompt;
    static_cast<ab::Place &>(prompt) = made_item("full", "full", "i000", 0);
    prompt.item = "i000";
    prompt.tokens = {"<script>", " b", " c"};
    records.emplace_back(prompt);
    ab::KeepMap map;
    static_cast<ab::Place &>(map) = made_item("window", "tokens:128", "i000", 0);
    map.item = "i000";
    map.layers = map.kv_heads = 1;
    map.bins.assign(64, 0.5F);
    map.kept = "0W_";
    records.emplace_back(map);
    const auto loaded = load_ab(folder, made_header(), records);
    const std::string html = ab::report_html(loaded->table, loaded->names, loaded->summary);
    test::check_offline(html);
    CHECK_FALSE(contains(html, "<script> b"));
    const auto data = data_of(html);
    REQUIRE(data.at("items").size() == 2);
    REQUIRE(data.at("itemSets").size() == 1); // both arms have the same items
    CHECK(data.at("itemSets")[0].size() == 200);
    CHECK(data.at("itemSets")[0][0][0] == "i000");
    CHECK(data.at("items")[1][2][99] == 1);
    CHECK(data.at("items")[1][2][100] == 0);
    REQUIRE(data.at("tokens").size() == 1);
    CHECK(data.at("tokens")[0][1][0] == "<script>");
    CHECK(data.at("tokens")[0][2][0][2] == "0W_");
    const auto &contrasts = data.at("contrasts");
    const auto column = [&](const char *name) -> int {
        const auto &columns = contrasts.at("columns");
        const auto at = std::find(columns.begin(), columns.end(), name);
        REQUIRE(at != columns.end());
        return contrasts.at("rows")[0][static_cast<size_t>(at - columns.begin())].get<int>();
    };
    CHECK(column("both") == 100);
    CHECK(column("onlyA") == 0);
    CHECK(column("onlyB") == 20);
    CHECK(column("neither") == 80);
    CHECK(column("identical") == 180);
}
