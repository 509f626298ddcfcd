// Tests of edge cases of the allocators: exact sums, refused inputs, and files.
#include "policies/plugin_rig.hpp"
#include "support/temp_folder.hpp"

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

keel_allocator_input input_of(const TestModel &model, const std::vector<int32_t> &lengths,
                              int64_t budget, int64_t protected_slots) {
    keel_allocator_input in = {KEEL_HEADER(keel_allocator_input)};
    in.layers = model.geometry.layers;
    in.kv_heads = model.geometry.kv_heads;
    in.budget = budget;
    in.protected_slots = in.fixed_slots = protected_slots;
    in.lengths = lengths.data();
    return in;
}

int64_t sum_of(const std::vector<int32_t> &budgets) {
    return std::accumulate(budgets.begin(), budgets.end(), int64_t{0});
}

} // namespace

TEST_CASE(
    "pyramid loses no slot to integer division, and gives equal shares if layers cannot differ") {
    const LoadedPlugin plugin("pyramid");
    for (const uint32_t layers : {1u, 2u, 5u, 16u, 31u}) {
        const TestModel model(layers, 4, 2, 8);
        AllocatorRun run(plugin, model);
        CHECK(run.needs.flags == KEEL_ALLOCATOR_BY_LAYER);
        for (const int32_t length : {10, 60, 100, 333, 5000}) {
            const std::vector<int32_t> lengths(layers * 2, length);
            for (const int64_t budget : {5, 37, 59, 99, 250}) {
                INFO(layers << " layers, " << length << " slots, budget " << budget);
                const auto budgets = run.allocate(input_of(model, lengths, budget, 5));
                CHECK(sum_of(budgets) == budget * layers * 2);
                CHECK(std::is_sorted(budgets.rbegin(), budgets.rend()));
                if (length <= budget || layers == 1 || budget == 5)
                    CHECK(budgets.front() == budgets.back());
                if (length > budget && layers > 1 && budget > 30)
                    CHECK(budgets.front() > budgets.back());
                if (length > budget) CHECK(budgets.front() <= length);
            }
        }
    }
}

TEST_CASE("pyramid gives each layer the slots that the policy needs and always keeps") {
    const LoadedPlugin plugin("pyramid", {{"beta", "1000"}});
    const TestModel model(4, 4, 2, 8);
    AllocatorRun run(plugin, model);
    const std::vector<int32_t> lengths(8, 1000);
    auto in = input_of(model, lengths, 40, 33); // a window of 32 slots, and one slot to choose
    in.fixed_slots = 32;
    const auto budgets = run.allocate(in);
    CHECK(sum_of(budgets) == 40 * 8);
    CHECK(budgets.back() == 33);
    in.fixed_slots = 300; // more than the budget, so no share depends on the layer
    in.protected_slots = 40;
    CHECK(run.allocate(in) == std::vector<int32_t>(8, 40));
}

TEST_CASE("pyramid with compat: kvpress gives kvpress's budgets, and never more than there is") {
    const auto ask = [](uint32_t layers, int32_t length, int64_t budget, int64_t window,
                        const std::string &beta) {
        const LoadedPlugin plugin("pyramid", {{"compat", "kvpress"}, {"beta", beta}});
        const TestModel model(layers, 1, 1, 8);
        AllocatorRun run(plugin, model);
        const std::vector<int32_t> lengths(layers, length);
        auto in = input_of(model, lengths, budget, window + 1);
        in.fixed_slots = window;
        return run.allocate(in);
    };
    using Budgets = std::vector<int32_t>;
    // 304, 278.4, 252.8, 227.2, 201.6, 176
    CHECK(ask(6, 320, 240, 16, "4") == Budgets{304, 278, 253, 227, 202, 176});
    // 37, 24.5, 12: halves go to the even number
    CHECK(ask(3, 100, 25, 4, "2") == Budgets{38, 25, 12});
    CHECK(ask(4, 60, 21, 3, "2") == Budgets{32, 24, 18, 10}); // 31.5, 24.5, 17.5, 10.5
    CHECK(ask(6, 320, 160, 64, "20") == Budgets{256, 218, 179, 141, 102, 64}); // the window alone
    CHECK(ask(6, 320, 80, 64, "20") == Budgets(6, 80)); // the last layer's share is too small
    // Python computes 2905 - 24 layers of halves that are not exact; their sum is a slot too large
    CHECK(sum_of(ask(24, 2905, 881, 4, "2")) == 24 * 881);
}

TEST_CASE("adaptive compares scores directly, or documents how it makes them comparable") {
    const TestModel model(1, 2, 2, 8);
    const auto flags = [&](const std::string &method) {
        const LoadedPlugin plugin("adaptive", {{"normalize", method}});
        const AllocatorRun run(plugin, model);
        CHECK(run.needs.needs == KEEL_ALLOCATOR_NEED_SCORES);
        return run.needs.flags;
    };
    CHECK(flags("none") == (KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_COMPARES));
    for (const char *method : {"sum", "rank", "softmax"})
        CHECK(flags(method) == KEEL_ALLOCATOR_RAGGED);
    const LoadedPlugin kvpress("adaptive", {{"compat", "kvpress"}});
    CHECK(AllocatorRun(kvpress, model).needs.flags == KEEL_ALLOCATOR_RAGGED);
    const LoadedPlugin both("adaptive", {{"compat", "kvpress"}, {"normalize", "sum"}});
    CHECK_THAT(AllocatorRun(both, model).error, Contains("compares scores as they are"));

    const float scores[] = {1, 2, -3, 4, 10, 20, 30, 40};
    const uint8_t mask[8] = {};
    const float *score_rows[] = {scores};
    const uint8_t *mask_rows[] = {mask};
    const std::vector<int32_t> lengths = {4, 4};
    auto in = input_of(model, lengths, 2, 0);
    in.stride = 4;
    in.scores = score_rows;
    in.protected_masks = mask_rows;
    const auto ask = [&](const std::map<std::string, std::string> &given) {
        const LoadedPlugin plugin("adaptive", given);
        AllocatorRun run(plugin, model);
        const auto budgets = run.allocate(in);
        return run.status == KEEL_OK ? std::to_string(budgets[0]) + "+" + std::to_string(budgets[1])
                                     : run.error;
    };
    CHECK(ask({{"floor", "0"}}) == "0+4");
    CHECK(ask({{"floor", "0.5"}}) == "1+3");
    CHECK(ask({{"floor", "1"}}) == "2+2");
    CHECK(ask({{"floor", "0"}, {"normalize", "rank"}}) == "2+2");
    CHECK_THAT(ask({{"normalize", "sum"}}),
               Contains("slot 2 of layer 0, head 0 has the score -3") && Contains("rank"));
    in.scores = nullptr;
    CHECK(ask({}) == "the host gave no scores");
}

TEST_CASE("file divides a budget by weight or by share, over layers or heads") {
    const TempFolder folder;
    const TestModel model(3, 4, 2, 8);
    const std::vector<int32_t> lengths(6, 100);
    const auto ask = [&](const std::string &text, int64_t budget, int64_t protected_slots,
                         uint32_t *flags = nullptr) {
        const LoadedPlugin plugin("file", {{"path", folder.write("b.json", text).string()}});
        AllocatorRun run(plugin, model);
        REQUIRE(run.error.empty());
        if (flags != nullptr) *flags = run.needs.flags;
        return run.allocate(input_of(model, lengths, budget, protected_slots));
    };
    using Budgets = std::vector<int32_t>;
    uint32_t flags = 9;
    CHECK(ask(R"({"budgets": [3, 2, 1]})", 20, 0, &flags) == Budgets{30, 30, 20, 20, 10, 10});
    CHECK(flags == KEEL_ALLOCATOR_BY_LAYER);
    CHECK(ask(R"({"budgets": [[2, 1], 1, [0, 1]], "unit": "weight"})", 10, 0, &flags) ==
          Budgets{20, 10, 10, 10, 0, 10});
    CHECK(flags == (KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_BY_LAYER));
    CHECK(ask(R"({"budgets": [[2, 1], 1, [0, 1]]})", 10, 4) == Budgets{19, 10, 9, 9, 4, 9});
    CHECK(ask(R"({"budgets": [1, 0.5, 0.25], "unit": "share", "comment": "a test"})", 20, 0) ==
          Budgets{20, 20, 10, 10, 5, 5});
    CHECK(ask(R"({"budgets": [100, 1, 1]})", 60, 0) ==
          Budgets{100, 100, 40, 40, 40, 40}); // no head has more than 100 slots
    CHECK(ask(R"({"budgets": [1, 1, 1]})", 200, 0) == Budgets(6, 200));
    for (const int64_t budget : {7, 23, 61}) {
        const auto budgets = ask(R"({"budgets": [[0.3, 0.77], [1.9, 0.01], 0.5]})", budget, 2);
        CHECK(sum_of(budgets) == 6 * budget);
        CHECK(*std::min_element(budgets.begin(), budgets.end()) >= 2);
    }
}

TEST_CASE("file reports errors of a file with their place") {
    const TempFolder folder;
    const TestModel model(2, 4, 2, 8);
    const auto error_of = [&](const std::string &text) {
        const LoadedPlugin plugin("file", {{"path", folder.write("b.json", text).string()}});
        const AllocatorRun run(plugin, model);
        CHECK(run.status == KEEL_E_INVALID_ARG);
        CHECK_THAT(run.error, Contains("b.json:"));
        return run.error;
    };
    CHECK_THAT(error_of("{\"budgets\": [1, "), Contains("b.json:1:17: not valid JSON: "));
    CHECK_THAT(error_of("{\n\"budgets\": x}"), Contains("b.json:2:12: not valid JSON: "));
    CHECK_THAT(error_of("[1, 2]"), Contains("expected an object"));
    CHECK_THAT(error_of("{}"), Contains("budgets: expected a list"));
    CHECK_THAT(error_of(R"({"budgets": [1, 2, 3]})"),
               Contains("3 layers, but the number of layers of the model is 2"));
    CHECK_THAT(error_of(R"({"budgets": [1, [1, 2, 3]]})"),
               Contains("budgets[1]: 3 heads, but the model has 2"));
    CHECK_THAT(error_of(R"({"budgets": [1, [1, -2]]})"),
               Contains("budgets[1][1]: expected a number from 0"));
    CHECK_THAT(error_of(R"({"budgets": [1, "x"]})"), Contains("budgets[1]: expected a number"));
    CHECK_THAT(error_of(R"({"budgets": [1, [[[]], 1]]})"),
               Contains("budgets[1][0]: expected a number"));
    CHECK_THAT(error_of(R"({"budgets": [0, 0]})"), Contains("found only 0"));
    CHECK_THAT(error_of(R"({"budgets": [1, 1e400]})"), Contains("b.json"));
    CHECK_THAT(error_of(R"({"budgets": [1, 1], "units": "share"})"),
               Contains("unknown key \"units\""));
    CHECK_THAT(error_of(R"({"budgets": [1, 1], "unit": 3})"), Contains("unit: expected"));
    CHECK_THAT(error_of(R"({"budgets": [1.5, 1], "unit": "share"})"),
               Contains("1.25") && Contains("at most 1"));
    CHECK_THAT(error_of(std::string(17u << 20, ' ')), Contains("16 MiB"));
    CHECK_THAT(error_of("\n" + std::string(100000, '[')),
               Contains("b.json:2: expected at most 32 nested levels"));
    std::string many = "{\"budgets\": [1, 1],\n\"comment\": [1";
    for (int i = 0; i < 200000; ++i) many += ",1";
    CHECK_THAT(error_of(many + "]}"), Contains("b.json:2: expected at most 200000 values"));
    CHECK_THAT(error_of(R"({"budgets": [1, 1], "budgets": [2, 1]})"),
               Contains("b.json: the key \"budgets\" occurs twice"));
    CHECK_THAT(error_of("{\"comment\": \"\xff\"}"), Contains("b.json:1:14: not valid JSON: "));
    CHECK_THAT(error_of("{\"comment\": \"[[[["), Contains("not valid JSON: "));
    // Brackets and commas in a string do not count, even after an escaped quote.
    CHECK_THAT(error_of(R"({"comment": "\")" + std::string(100, '[') + R"(", "budgets": 1})"),
               Contains("b.json: budgets: expected a list"));

    const LoadedPlugin missing("file", {{"path", (folder / "none.json").string()}});
    CHECK_THAT(AllocatorRun(missing, model).error, Contains("none.json: cannot be opened"));
    const LoadedPlugin directory("file", {{"path", folder.path().string()}});
    CHECK(AllocatorRun(directory, model).status == KEEL_E_INVALID_ARG);
    CHECK_THAT(error_text([] { LoadedPlugin("file"); }), Contains("path"));
}
