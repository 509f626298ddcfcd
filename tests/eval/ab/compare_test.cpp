// Tests of the comparison of two results: missing items, a filter that hides items, and items that
// differ.
#include "eval/ab/records/merge.hpp"
#include "eval/ab/verdicts/compare.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

using namespace keel;
using test::contains;
using test::error_text;
using test::made_header;
using test::made_item;
using test::write_ab;

namespace {

// Returns n items of an arm. All of them are hits.
std::vector<ab::Record> hits(int n, const std::function<void(ab::Item &)> &change = {}) {
    std::vector<ab::Record> records;
    for (int i = 0; i < n; ++i) {
        ab::Item item = made_item("full", "full", fmt::format("i{}", i), 1);
        item.document = fmt::format("d{}", i);
        item.expected = fmt::format("{}", 10'000 + i);
        item.depth = 0.5;
        if (change) change(item);
        records.emplace_back(item);
    }
    return records;
}

std::string compare_text(const std::filesystem::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("a strict comparison fails if the second run lacks items") {
    const test::TempFolder folder;
    const auto all = write_ab(folder / "all", made_header(), hits(60)),
               some = write_ab(folder / "some", made_header(), hits(40));
    ab::CompareOptions options;
    options.margins["hit"] = 0.2;
    CHECK(ab::compare_results(all, some, options).passed());
    options.strict = true;
    const ab::Comparison lacking = ab::compare_results(all, some, options);
    CHECK(lacking.unproven == 0);
    CHECK(lacking.lost == 0);
    CHECK(lacking.lost_items == 20);
    CHECK_FALSE(lacking.passed());
    CHECK(contains(ab::text_of_comparison(lacking),
                   "20 numbers of the first experiment's items are missing in the second"));
    CHECK(contains(ab::text_of_comparison(lacking), "these and missing results count"));
    CHECK(ab::comparison_json(lacking).at("lost_items") == 20);
    // More items than before are not a loss.
    const ab::Comparison more = ab::compare_results(some, all, options);
    CHECK(more.lost_items == 0);
    CHECK(more.passed());
    CHECK(contains(ab::text_of_comparison(more),
                   "20 numbers of the second experiment's items are missing in the first"));
}

TEST_CASE("with a filter, equal hits do not become a proof") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double shift) {
        std::vector<ab::Record> records = hits(20);
        for (int i = 0; i < 60; ++i)
            records.emplace_back(
                made_item("full", "full", fmt::format("n{}", i), 3 + 0.1 * i + shift, "nll"));
        return write_ab(folder / name, made_header(), records);
    };
    const auto first = results("first", 0), same = results("same", 0),
               other = results("other", 0.5);
    ab::CompareOptions strict;
    strict.strict = true;
    CHECK(ab::compare_results(first, same, strict).passed());
    for (const bool by_metric : {true, false}) {
        ab::CompareOptions filtered = strict;
        (by_metric ? filtered.metrics : filtered.tasks) = {by_metric ? "hit" : "passkey"};
        CHECK(ab::compare_results(first, same, filtered).passed());
        const ab::Comparison c = ab::compare_results(first, other, filtered);
        REQUIRE(c.contrasts.size() == 1);
        CHECK(c.contrasts[0].verdict == ab::Verdict::equal);
        CHECK_FALSE(c.contrasts[0].is_equal_rerun);
        CHECK(c.unproven == 1);
        CHECK_FALSE(c.passed());
    }
}

TEST_CASE("items with the same name and different content are refused") {
    const test::TempFolder folder;
    const auto first = write_ab(folder / "first", made_header(), hits(20));
    const auto refusal = [&](const std::string &name,
                             const std::function<void(ab::Item &)> &change) {
        const auto second = write_ab(folder / name, made_header(), hits(20, change));
        const std::string found = error_text([&] { ab::compare_results(first, second, {}); });
        CHECK(contains(found, "different items: task 'passkey', item i"));
        return found;
    };
    CHECK(contains(refusal("length", [](ab::Item &i) { i.length = 1000; }),
                   "the prompt has 512 tokens in the first experiment, 1000 in the second"));
    CHECK(contains(refusal("seed", [](ab::Item &i) { i.expected = "99999"; }),
                   "'99999' in the second"));
    CHECK(contains(refusal("document", [](ab::Item &i) { i.document += "x"; }), "the document or"));
    // Another model may write the same text in a different number of tokens.
    ab::Header model = made_header();
    model.model = "other";
    const auto longer =
        write_ab(folder / "model", model, hits(20, [](ab::Item &i) { i.length = 540; }));
    CHECK(contains(ab::text_of_comparison(ab::compare_results(first, longer, {})),
                   "20 prompts have another length"));
}

TEST_CASE("comparing the reference with itself is not planned, and has an effect but no verdict") {
    const test::TempFolder folder;
    const auto summary = [&](const std::string &name, int others) {
        std::vector<ab::Record> records = hits(12);
        for (ab::Record &record : hits(12)) {
            auto &item = std::get<ab::Item>(record);
            item.arm = "full#again";
            item.value = others-- > 0 ? 0 : 1;
            records.push_back(item);
        }
        ab::Names names;
        return ab::summarize(ab::load_table(write_ab(folder / name, made_header(), records), names),
                             names);
    };
    const ab::Summary same = summary("same", 0), other = summary("other", 10);
    REQUIRE(same.noise.size() == 1);
    CHECK(same.noise[0].verdict == ab::Verdict::equal);
    REQUIRE(other.noise.size() == 1);
    CHECK(other.noise[0].verdict == ab::Verdict::exploratory);
    CHECK(other.noise[0].interval->high < 0);
    CHECK_FALSE(other.noise[0].p);
}

TEST_CASE("merged results replace only results of the same experiment") {
    const test::TempFolder folder;
    std::vector<std::filesystem::path> shards;
    for (uint32_t i = 1; i <= 2; ++i) {
        ab::Header header = made_header();
        header.shard = i;
        header.shards = 2;
        shards.push_back(
            write_ab(folder / fmt::format("s{}", i), header, hits(4 + static_cast<int>(i))));
    }
    ab::Header other = made_header();
    other.config_hash = "another";
    const auto theirs = write_ab(folder / "theirs", other, hits(1)),
               ours = write_ab(folder / "ours", made_header(), {});
    const std::string before = compare_text(theirs / "results.jsonl");
    CHECK(contains(error_text([&] { ab::merge_shards(shards, theirs, true); }),
                   "another experiment's results"));
    CHECK(compare_text(theirs / "results.jsonl") == before);
    CHECK(ab::merge_shards(shards, ours, true).records == 6);
    CHECK(contains(error_text([&] { ab::merge_shards(shards, ours); }), "exists already"));
    // If two builds of a plugin were used, the comparison names them.
    ab::Header second = made_header();
    second.shard = second.shards = 2;
    second.config_hash = "other";
    second.libraries = {{"policy snapkv", "snapkv.so 2"}};
    ab::Header first = second;
    first.shard = 1;
    first.config_hash = "one";
    first.libraries = {{"policy snapkv", "snapkv.so 1"}};
    const auto one = write_ab(folder / "one", first, {}),
               two = write_ab(folder / "two", second, {});
    CHECK(ab::read_header(one / "results.jsonl").libraries == first.libraries);
    CHECK(contains(error_text([&] {
                       ab::merge_shards({one, two}, folder / "none");
                   }),
                   "policy snapkv (snapkv.so)"));
}

TEST_CASE(
    "a loss is found among hundreds of contrasts, whatever the resamples of the first run are") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double loss) {
        std::vector<ab::Record> records;
        for (int arm = 0; arm < 40; ++arm)
            for (int i = 0; i < 60; ++i)
                records.emplace_back(
                    made_item(fmt::format("a{}", arm), "full", fmt::format("i{}", i),
                              3 + 0.1 * i + loss * (1 + 0.01 * ((i * 7 + arm) % 20)), "nll"));
        return write_ab(folder / name, made_header(), records);
    };
    const auto first = results("first", 0), second = results("second", 1);
    const ab::Comparison c = ab::compare_results(first, second, {});
    CHECK(c.decided == 40);
    CHECK(c.worse == 40);
    CHECK_FALSE(c.passed());
}

TEST_CASE("contrasts without an interval are reported") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double loss) {
        std::vector<ab::Record> records;
        for (int i = 0; i < 60; ++i)
            records.emplace_back(
                made_item("a", "full", fmt::format("i{}", i), i == 0 ? 3 + loss : 3, "nll"));
        return write_ab(folder / name, made_header(), records);
    };
    const ab::Comparison c = ab::compare_results(results("first", 0), results("second", 1), {});
    CHECK(c.passed());
    CHECK(contains(ab::text_of_comparison(c), "1 of the deciding contrasts have no interval"));
}

TEST_CASE("metrics that are fixed for the reference do not decide") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double shift) {
        std::vector<ab::Record> records;
        for (int i = 0; i < 60; ++i) {
            const std::string item = fmt::format("i{}", i);
            records.emplace_back(
                made_item("full", "full", item, 3 + 0.1 * i + shift * (i % 5), "nll"));
            records.emplace_back(made_item("full", "full", item, 0, "kld"));
            records.emplace_back(made_item("full", "full", item, 1, "top1"));
        }
        return write_ab(folder / name, made_header(), records);
    };
    ab::CompareOptions strict;
    strict.strict = true;
    const ab::Comparison c =
        ab::compare_results(results("first", 0), results("second", 1e-6), strict);
    CHECK(c.contrasts.size() == 3);
    CHECK(c.decided == 1);
    CHECK(c.unproven == 0);
    CHECK(c.passed());
}
