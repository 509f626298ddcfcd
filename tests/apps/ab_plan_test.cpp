// keel ab plan, and runs that are checked against a plan.
#include "apps/keel_process.hpp"

using namespace keel::test;

namespace {

namespace fs = std::filesystem;

std::string planned_experiment(const TempFolder &folder, const std::string &name,
                               const std::string &margin = "5 points") {
    return folder
        .write(name, "base: " + source_folder +
                         "/configs/ab/pipeline.yaml\n"
                         "arms: {full: {policy: none}, window: {policy: sliding_window}}\n"
                         "budgets: [{tokens: 48}]\n"
                         "tasks: [{kind: passkey, lengths: [160], depths: 2, items: 2}]\n"
                         "statistics: {margins: {hit: " +
                         margin + "}}\noutput: out\n")
        .string();
}

} // namespace

TEST_CASE("a run names its plan, and a changed experiment needs --changed-plan") {
    const TempFolder folder;
    const std::string file = planned_experiment(folder, "my.yaml"),
                      other = planned_experiment(folder, "other.yaml", "6 points"),
                      plan = folder / "my.plan.yaml", out = folder / "out";
    const ProcessResult frozen = run_keel({"ab", "plan", file});
    INFO(frozen.err);
    REQUIRE(frozen.code == 0);
    CHECK(contains(frozen.out, "1. window at tokens:48 against full on passkey hit"));
    CHECK(contains(frozen.out, "task passkey: 4 items"));
    const auto json = parse_json(run_keel({"ab", "plan", file, "--json"})); // the same bytes
    const std::string hash = json.at("hash");
    CHECK(contains(frozen.out, "hash: " + hash));
    CHECK(contains(read_file(plan), hash));

    const ProcessResult run = run_keel({"ab", file, "--plan", plan, "-q"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    CHECK(contains(run.out, "Plan " + hash + ", frozen before the run"));
    CHECK(contains(failure(run_keel({"ab", file, "-q"})), "this run has no plan"));

    const ProcessResult refused = run_keel({"ab", other, "--plan", plan, "-q"});
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(contains(refused.err, "THE PLAN WAS CHANGED"));
    CHECK(contains(refused.err, "margins hit: planned '5 points', now '6 points'"));
    CHECK(contains(refused.err, "--changed-plan"));
    const ProcessResult changed =
        run_keel({"ab", other, "--plan", plan, "--changed-plan", "-q", "-o", folder / "changed"});
    INFO(changed.err);
    REQUIRE(changed.code == 0);
    CHECK(contains(changed.out, "exploratory: the plan was changed"));
    CHECK(contains(failure(run_keel({"ab", file, "--plan", plan, "--changed-plan"})),
                   "does not differ from the plan"));
    CHECK(contains(failure(run_keel({"ab", file, "--changed-plan"})), "--plan"));
    const ProcessResult compared = run_keel({"ab", "compare", out, folder / "changed"});
    CHECK(compared.code == 2);
    CHECK(contains(compared.out, "no verdict: exploratory: the plan was changed"));

    const ProcessResult power = run_keel({"ab", "power", out, "--margin", "hit=10 points"});
    INFO(power.err);
    CHECK(power.code == 0);
    CHECK(contains(power.out, "window at tokens:48 against full"));
    CHECK(contains(power.out, "the pilot has only 4 documents"));
    CHECK(contains(failure(run_keel({"ab", "power", out, "--margin", "hit=0.05"})),
                   "with the metric's unit"));
    CHECK(contains(failure(run_keel({"ab", file, "--pilot", out})), "--dry-run"));
    const auto dry = parse_json(
        run_keel({"ab", file, "--plan", plan, "--dry-run", "--pilot", out, "--json", "-q"}));
    CHECK(dry.at("power").at("contrasts").at(0).at("documents") == 4);
    CHECK(contains(run_keel({"ab", file, "--plan", plan, "--dry-run", "-q"}).out,
                   "power: not known without a pilot"));

    const ProcessResult early =
        run_keel({"ab", file, "--plan", plan, "--items", "2", "-q", "-o", folder / "early"});
    REQUIRE(early.code == 0);
    CHECK(contains(early.out, "early look: 2 of 4 items"));
}

TEST_CASE("a rule for early looks needs a plan, and its looks are recorded") {
    const TempFolder folder;
    const std::string file = planned_experiment(folder, "my.yaml",
                                                "5 points}, looks: obrien_fleming, "
                                                "seed: 2"),
                      plan = folder / "my.plan.yaml", out = folder / "out";
    // The margin's brace is closed in the text above.
    std::string text = read_file(file);
    text.replace(text.find("seed: 2}}"), 9, "seed: 2}");
    folder.write("my.yaml", text);
    CHECK(contains(failure(run_keel({"ab", file})), "freeze the plan with 'keel ab plan'"));
    REQUIRE(run_keel({"ab", "plan", file}).code == 0);
    const ProcessResult early = run_keel({"ab", file, "--plan", plan, "--items", "2", "-q"});
    INFO(early.err);
    REQUIRE(early.code == 0);
    CHECK(contains(early.out, "early look: 2 of 4 items"));
    CHECK(contains(early.out, "each report is a look"));
    REQUIRE(run_keel({"ab", file, "--plan", plan, "-q"}).code == 0);
    REQUIRE(run_keel({"ab", "report", out}).code == 0);
    const std::string looks = read_file(fs::path(out) / "looks.jsonl");
    CHECK(std::count(looks.begin(), looks.end(), '\n') == 2);
}

TEST_CASE("hostile plans end in one line before anything runs") {
    const TempFolder folder;
    const std::string file = planned_experiment(folder, "my.yaml"), out = folder / "out";
    REQUIRE(run_keel({"ab", "plan", file, "--out", folder / "p.yaml"}).code == 0);
    std::string edited = read_file(folder / "p.yaml");
    edited.replace(edited.find("5 points"), 8, "9 points");
    folder.write("edited.yaml", edited);
    folder.write("broken.yaml", "keel_ab_plan: [");
    folder.write("huge.yaml", "keel_ab_plan: 1\nx: " + std::string(size_t{6} << 20, 'x'));
    folder.write("binary.yaml", std::string("\x00\xff\x01", 3));
    for (const auto &[name, part] : std::vector<std::pair<std::string, std::string>>{
             {"edited.yaml", "the plan was edited"},
             {"broken.yaml", "broken.yaml:1:"},
             {"huge.yaml", "huge.yaml"},
             {"binary.yaml", "binary.yaml"},
             {"my.yaml", "expected a plan of 'keel ab plan'"},
             {"nowhere.yaml", "nowhere.yaml"}})
        CHECK(contains(failure(run_keel({"ab", file, "--plan", folder / name})), part));
    CHECK_FALSE(fs::exists(out));
    CHECK(contains(failure(run_keel({"ab", "plan", planned_experiment(folder, "o.yaml", "1 points"),
                                     "--out", folder / "p.yaml"})),
                   "a frozen plan is not replaced"));
}
