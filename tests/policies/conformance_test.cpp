// Runs the policy checker on every policy and budget allocator of the build tree. Also checks that
// the checker finds faults.
#include "policies/plugin_rig.hpp"
#include "policy_check/check.hpp"
#include "support/temp_folder.hpp"

#include <fstream>

using namespace keel;
using namespace keel::test;
using namespace keel::policy_check;

namespace {

std::string first_failures(const Report &report) {
    std::string text = std::to_string(report.checks) + " checks";
    for (size_t i = 0; i < std::min<size_t>(5, report.failures.size()); ++i)
        text += "\n" + report.failures[i];
    return text;
}

ParamValues bind(const PluginLibrary &library, const std::map<std::string, std::string> &given) {
    std::vector<GivenParam> rows;
    for (const auto &[key, text] : given)
        rows.push_back({key, text, GivenParam::Form::plain, {}, {}});
    return library.params().bind(rows, {});
}

// Parameters that change what a plugin does. They are tested in addition to the defaults.
const std::multimap<std::string, std::map<std::string, std::string>> variants = {
    {"random", {{"per", "layer"}}},
    {"random", {{"per", "token"}, {"seed", "5"}}},
    {"snapkv", {{"group", "none"}, {"pool", "max"}, {"decode", "true"}}},
    {"snapkv", {{"window", "1"}, {"kernel", "1"}, {"group", "sum"}}},
    {"h2o", {{"score", "mean"}, {"recent_share", "0"}, {"blockwise", "true"}}},
    {"tova", {{"keep_newest", "false"}, {"blockwise", "true"}}},
    {"keydiff", {{"sinks", "0"}, {"blockwise", "false"}}},
    {"expected_attention", {{"covariance", "false"}, {"value_norms", "false"}, {"sinks", "0"}}},
    {"compactor", {{"sinks", "0"}, {"tail", "0"}, {"sketch", "3"}, {"chunk", "1"}, {"blend", "2"}}},
    {"kvzip", {{"sinks", "0"}, {"lead", "0"}}},
    {"kvzip", {{"compat", "kvpress"}}},
    {"sliding_window", {{"window", "5"}}},
    {"pyramid", {{"beta", "3"}}},
    {"pyramid", {{"compat", "kvpress"}, {"beta", "3"}}},
    {"adaptive", {{"normalize", "sum"}, {"floor", "0"}}},
    {"adaptive", {{"normalize", "rank"}, {"scope", "global"}}},
    {"adaptive", {{"normalize", "softmax"}, {"floor", "1"}}},
    {"adaptive", {{"scope", "global"}}},
    {"adaptive", {{"compat", "kvpress"}}},
};

} // namespace

TEST_CASE("Every built policy and budget allocator keeps the rules of the headers") {
    const TempFolder folder;
    const auto curve = folder.write("curve.json", R"({"budgets": [3, [1, 2, 0, 4], 0.5]})");
    size_t checked = 0;
    for (const auto &entry : std::filesystem::directory_iterator(
             std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins")) {
        if (entry.path().extension() != ".so") continue;
        const PluginLibrary library(entry.path(), {});
        if (library.kind() == KEEL_PLUGIN_BACKEND) continue;
        std::vector<std::map<std::string, std::string>> all(1);
        if (library.id() == "file") all = {{{"path", curve.string()}}};
        const auto [begin, end] = variants.equal_range(library.id());
        for (auto i = begin; i != end; ++i) all.push_back(i->second);
        for (const auto &given : all) {
            const ParamValues params = bind(library, given);
            const bool policy = library.kind() == KEEL_PLUGIN_POLICY;
            const Report report = policy ? check_policy(library, params, usual_models(), 3)
                                         : check_allocator(library, params, usual_models(), 3);
            INFO(library.id() << ", variant " << (given.empty() ? "defaults" : given.begin()->first)
                              << ": " << first_failures(report));
            CHECK(report.failures.empty());
            CHECK(report.checks > 100);
            ++checked;
        }
    }
    CHECK(checked >= 30);
}

TEST_CASE("The checker finds broken rules, and none in a correct policy with a state") {
    const PluginLibrary library(std::filesystem::path(KEEL_FAULTY_POLICY), {});
    const auto failures = [&](const std::string &fault) {
        const Report report =
            check_policy(library, bind(library, {{"fault", fault}}), {{2, 4, 2, 8}}, 1);
        INFO(fault << ": " << first_failures(report));
        CHECK(report.failures.empty() == (fault == "none"));
        return first_failures(report);
    };
    using Catch::Matchers::Contains;
    failures("none");
    CHECK_THAT(failures("nan"), Contains("NaN"));
    CHECK_THAT(failures("left_out"), Contains("left out"));
    CHECK_THAT(failures("outside"), Contains("outside the arrays"));
    CHECK_THAT(failures("garbage"), Contains("after the end of a head"));
    CHECK_THAT(failures("different"), Contains("different answers"));
    CHECK_THAT(failures("reset"), Contains("reset"));
    CHECK_THAT(failures("forget"), Contains("loaded"));
    CHECK_THAT(failures("list"), Contains("strictly rising"));
    CHECK_THAT(failures("silent"), Contains("no message"));
    CHECK_THAT(failures("impatient"), Contains("bits"));
}
