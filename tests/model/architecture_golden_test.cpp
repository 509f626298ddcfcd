// Compares a miniature of each architecture with Hugging Face transformers on the same weights.

#include "golden_check.hpp"
#include "support/temp_folder.hpp"

using namespace keel;
using namespace keel::test;

TEST_CASE("each architecture gives the logits of transformers: a prompt longer than its window, "
          "then token "
          "by token") {
    const std::vector<Miniature> models = read_miniatures();
    const std::vector<GoldenCase> cases = read_golden("arch_logits.json");
    REQUIRE(models.size() == cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
        const GoldenCase &golden = cases[i];
        const TempFolder folder;
        write_miniature(folder.path(), models[i]);
        for (const std::string backend : {"cpu", "reference"}) {
            INFO(golden.name << " on " << backend);
            const auto pipeline = open(exact(folder.path(), backend));
            Session session(*pipeline);
            session.prefill(golden.ids);
            int records = check_here(session, golden);
            for (const int32_t id : golden.greedy) {
                session.decode(id);
                records += check_here(session, golden);
            }
            CHECK(records == 3);
        }
    }
}

TEST_CASE("each architecture gives the logits of transformers at every position of a prompt taken "
          "token by token") {
    const std::vector<GoldenCase> cases = read_golden("arch_logits.json");
    for (const Miniature &model : read_miniatures()) {
        INFO(model.name);
        const TempFolder folder;
        write_miniature(folder.path(), model);
        const auto golden = std::find_if(cases.begin(), cases.end(),
                                         [&](const GoldenCase &c) { return c.name == model.name; });
        const auto pipeline = open(exact(folder.path(), "cpu"));
        Session session(*pipeline);
        int records = 0;
        for (const int32_t id : golden->ids) {
            session.decode(id);
            CHECK(session.greedy() == argmax(session.logits()));
            records += check_here(session, *golden);
        }
        CHECK(records == 9);
    }
}

// With one layer, keys and values depend only on their own token. So a cache that lost some tokens
// must give the same result as a new run on the kept tokens. When positions change, the keys of
// each layer must be rotated by the angles of that layer.
TEST_CASE("after an eviction with re-rotated positions, each architecture continues as with only "
          "the kept tokens") {
    for (const std::string name :
         {"llama_biases", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"}) {
        for (const int window : {11, 30}) { // shorter and longer than the kept tokens
            INFO(name << ", window " << window);
            Miniature model = shortened(read_miniature(name), 1);
            if (model.config.contains("sliding_window")) model.config["sliding_window"] = window;
            const TempFolder folder;
            write_miniature(folder.path(), model);
            const GoldenCase golden = read_golden("arch_logits.json").at(0);
            std::vector<int32_t> ids(golden.ids.begin(), golden.ids.begin() + 64);
            const auto evicting = open(exact(
                folder.path(), "cpu",
                {"policy.plugin=sliding_window", "policy.budget.tokens=24", "policy.budget.slack=8",
                 "policy.protect.prefix=4", "policy.positions=rerotated"}));
            const auto plain = open(exact(folder.path(), "cpu"));
            Session a(*evicting), b(*plain);
            a.prefill(ids);
            for (int i = 0; i < 30; ++i) a.decode(golden.ids[static_cast<size_t>(64 + i)]);
            REQUIRE(a.stats().evictions > 2);
            b.prefill(kept_by_window(a, 4));
            CHECK(largest_gap(a.logits(), b.logits()) < bound);
        }
    }
}
