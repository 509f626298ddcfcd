// Tests each shipped policy on each kind of model in the table of docs/reference/models.md.
#include "windowed_policies.hpp"

#include "run/session_file.hpp"

#include <set>

using namespace keel;
using namespace keel::test;

namespace {

// Returns the rows of the table whose first column is `first`, without the separator row.
std::vector<std::vector<std::string>> table_of_docs(const std::string &first) {
    std::ifstream in(KEEL_SOURCE_DIR "/docs/reference/models.md");
    std::vector<std::vector<std::string>> rows;
    std::string line;
    bool inside = false;
    while (std::getline(in, line)) {
        if (!inside && !line.starts_with("| " + first + " |")) continue;
        inside = line.starts_with("|");
        if (!inside) break;
        std::vector<std::string> cells;
        for (size_t at = 1; at + 1 < line.size();) {
            const size_t end = line.find('|', at);
            const std::string cell = line.substr(at, end - at);
            const size_t begin = cell.find_first_not_of(' ');
            cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') - begin + 1));
            at = end + 1;
        }
        if (!cells.front().starts_with("-")) rows.push_back(std::move(cells));
    }
    return rows;
}

} // namespace

TEST_CASE(
    "Every policy runs on every shape of model as the table of docs/reference/models.md says") {
    const auto table = table_of_docs("policy");
    REQUIRE(table.size() == shipped_policies().size() + 1);
    const std::vector<std::string> &head = table.front();
    REQUIRE(head.size() == windowed_shapes().size() + 1);
    std::set<std::string> named;
    for (size_t row = 1; row < table.size(); ++row) {
        std::string policy = table[row].front();
        policy = policy.substr(1, policy.size() - 2); // removes the backquotes of `snapkv`
        named.insert(policy);
        for (size_t i = 0; i < windowed_shapes().size(); ++i) {
            const std::string &shape = windowed_shapes()[i];
            INFO(policy << " on " << shape);
            CHECK(table[row][i + 1] == KeptByPolicy(policy, shape, "cpu").text());
        }
    }
    const auto shipped = shipped_policies();
    CHECK(named == std::set<std::string>(shipped.begin(), shipped.end()));
}

TEST_CASE("Policies keep on every shape of model the slots that the reference's numbers give") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"snapkv", "gemma3"}, // heads of 256 elements are slow on the reference backend
        {"snapkv", "gemma2"},    {"h2o", "gemma2"},
        {"tova", "gemma2"},      {"expected_attention", "gemma2"},
        {"compactor", "gemma2"}, {"kvzip", "gemma2"},
        {"keydiff", "gemma2"},   {"snapkv", "mistral"},
        {"h2o", "mistral"},      {"compactor", "mistral"},
        {"kvzip", "mistral"}};
    for (const auto &[policy, shape] : cases) {
        INFO(policy << " on " << shape);
        const KeptByPolicy cpu(policy, shape, "cpu", 64), reference(policy, shape, "reference", 64);
        CHECK(cpu.share_of(reference) > 0.97); // slots with nearly equal scores may differ
    }
}

TEST_CASE("A prompt that is read in parts is evicted by the queries of its end") {
    const auto kept = [](Session &session) {
        std::vector<std::vector<int32_t>> all;
        const KvCache &cache = session.cache().cache();
        for (size_t row = 0; row < cache.rows(); ++row)
            all.emplace_back(cache.row_positions(row).begin(), cache.row_positions(row).end());
        return all;
    };
    const std::vector<int32_t> ids = some_tokens(120);
    for (const auto &[policy, shape] : {std::pair{"snapkv", "llama"}, std::pair{"snapkv", "gemma3"},
                                        std::pair{"tova", "llama"}}) {
        INFO(policy << " on " << shape);
        Sets more = {std::string("policy.plugin=") + policy, "policy.budget.tokens=32"};
        if (policy == std::string("snapkv")) more.emplace_back("policy.params.window=8");
        PipelineOptions options;
        options.sequences = 2;
        Pipeline pipeline(pipeline::config_from_overrides(windowed_sets(shape, "cpu", more)),
                          options);
        Session session(pipeline);
        session.prefill(ids);
        session.logits();
        const auto expected = kept(session);
        const uint64_t at_end = session.cache().policy_bytes();

        session.reset();
        session.prefill(ids, false);
        const TempFolder folder;
        save_session(session, folder.path() / "a.session");
        const auto fork = session.fork();
        session.end_prompt();
        CHECK(kept(session) == expected);
        CHECK(session.cache().policy_bytes() == at_end); // the memory of the queries was freed
        fork->end_prompt();
        CHECK(kept(*fork) == expected);

        session.reset();
        load_session(session, folder.path() / "a.session");
        session.end_prompt();
        CHECK(kept(session) == expected);

        session.reset(); // the last parts are shorter than the policy's window
        for (const auto &[first, n] : {std::pair{0, 117}, std::pair{117, 1}, std::pair{118, 2}})
            session.prefill(
                std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(n)),
                first == 118 && shape == std::string("gemma3"));
        if (shape != std::string("gemma3")) session.end_prompt();
        session.logits();
        CHECK(kept(session) == expected);
    }
}

TEST_CASE("Allocators divide a budget among the layers on which the policy acts") {
    for (const std::string allocator : {"uniform", "pyramid", "adaptive"}) {
        for (const std::string &shape : windowed_shapes()) {
            INFO(allocator << " on " << shape);
            const KeptByPolicy kept("snapkv", shape, "cpu", 120, {"policy.allocator=" + allocator});
            CHECK(kept.evictions() == 1);
            CHECK(kept.slots() <= kept.rows() * KeptByPolicy::budget);
        }
    }
}
