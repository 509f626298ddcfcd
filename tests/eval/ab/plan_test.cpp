// A frozen plan: its bytes, what it binds, what a broken one ends in, and the results under it.
#include "eval/ab/plan/frozen_plan.hpp"
#include "eval/ab/plan/hypotheses.hpp"
#include "lab.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

using namespace keel;
using test::contains;
using test::error_text;
using test::Lab;

namespace {

const std::string plan_arms = "arms: {full: {policy: none}, window: {policy: sliding_window}, "
                              "snapkv: {policy: snapkv}}\nbudgets: [{tokens: 48}]\n";
const std::string plan_tasks = "tasks: [{kind: passkey, lengths: [160], depths: 2, items: 2}]\n";
const std::string plan_margins = "statistics: {margins: {hit: 5 points}}\n";

// "NAME: planned ..., now ..." of each difference.
std::vector<std::string> changes(const Lab &lab, const std::string &now) {
    const ab::PlanRecord planned =
        ab::freeze_plan(lab.resolve(plan_arms + plan_tasks + plan_margins)).record;
    std::vector<std::string> out;
    for (const ab::PlanChange &one :
         ab::plan_changes(planned, ab::freeze_plan(lab.resolve(now)).record))
        out.push_back(ab::change_text(one));
    return out;
}

bool has(const std::vector<std::string> &all, const std::string &part) {
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string &one) { return contains(one, part); });
}

} // namespace

TEST_CASE("the same experiment gives the same plan, byte for byte, in any folder") {
    const Lab first, second;
    const ab::FrozenPlan a = ab::freeze_plan(first.resolve(plan_arms + plan_tasks + plan_margins)),
                         b = ab::freeze_plan(second.resolve(plan_arms + plan_tasks + plan_margins +
                                                            "title: another\noutput: elsewhere\n"));
    CHECK(a.text == b.text);
    CHECK(a.record.hash == b.record.hash);
    const ab::PlanRecord read = ab::parse_plan(a.text, "plan.yaml");
    CHECK(read.entries == a.record.entries);
    CHECK(read.hash == a.record.hash);
    CHECK(read.items("passkey") == 4);
    CHECK(read.all(ab::plan_hypotheses) ==
          std::vector<std::string>{
              "window at tokens:48 against full on passkey hit (question_blind): test of a "
              "difference from 0 (two-sided); non-inferior and equivalent by a margin of 5 points",
              "snapkv at tokens:48 against full on passkey hit (question_blind): test of a "
              "difference from 0 (two-sided); non-inferior and equivalent by a margin of 5 "
              "points"});
    CHECK(read.all(ab::plan_contrasts) ==
          std::vector<std::string>{"snapkv against full on passkey/hit",
                                   "window against full on passkey/hit"});
}

TEST_CASE("a plan says item by item what an experiment changed") {
    const Lab lab;
    CHECK(changes(lab, plan_arms + plan_tasks + plan_margins).empty());
    CHECK(changes(lab, plan_arms + plan_tasks + "statistics: {margins: {hit: 6 points}}\n") ==
          std::vector<std::string>{"margins hit: planned '5 points', now '6 points'"});
    CHECK(changes(lab, plan_arms + plan_tasks +
                           "statistics: {confidence: 0.9, margins: {hit: 5 points}}\n") ==
          std::vector<std::string>{"statistics confidence: planned '0.95', now '0.9'",
                                   "statistics level of the family: planned '0.05', now '0.1'"});
    const auto contrasts =
        changes(lab, plan_arms + plan_tasks + plan_margins + "contrasts: [[window, snapkv]]\n");
    CHECK(has(contrasts, "contrasts: planned 'snapkv against full on passkey/hit', now nothing"));
    CHECK(has(contrasts, "contrasts: planned nothing, now 'window against snapkv on passkey/hit'"));
    // The default list, written out in another order, is no change.
    CHECK(changes(lab, plan_arms + plan_tasks + plan_margins +
                           "contrasts: [[full, window], [snapkv, full]]\n")
              .empty());
    const auto items =
        changes(lab, plan_arms + "tasks: [{kind: passkey, lengths: [160], depths: 2, items: 3}]\n" +
                         plan_margins);
    CHECK(has(items, "tasks passkey items: planned '4', now '6'"));
    const auto key = changes(lab, "arms: {full: {policy: none}, window: {policy: sliding_window}, "
                                  "snapkv: {policy: {plugin: snapkv, positions: rerotated}}}\n"
                                  "budgets: [{tokens: 48}]\n" +
                                      plan_tasks + plan_margins);
    CHECK(has(key, "arms snapkv at tokens:48 policy.positions: planned nothing, now 'rerotated'"));
    CHECK_FALSE(has(key, "experiment hash"));
}

TEST_CASE("the hypotheses of a plan are the planned contrasts of the results") {
    const Lab lab;
    const std::string text =
        plan_arms + "protocol: [question_blind, whole_prompt]\n" +
        "tasks: [{kind: passkey, lengths: [160], depths: 2, items: 2}, {kind: continuation, "
        "text: " +
        test::tiny + "/heldout.txt, prefix: 96, score: 8, documents: 3}]\n" +
        "contrasts: [reference, [snapkv, window, continuation/kld], [window, full, "
        "continuation/kld]]\n";
    const ab::Experiment e = lab.resolve(text);
    const std::vector<ab::Hypothesis> all = ab::hypotheses_of(e);
    REQUIRE(all.size() == 6);
    CHECK(ab::count_tests(all) == 5);
    CHECK(all[0].protocol == "question_blind");
    CHECK(all[1].protocol == "whole_prompt");
    CHECK(contains(ab::hypothesis_text(all[4]),
                   "snapkv at tokens:48 against window at tokens:48 on "
                   "continuation kld: test"));
    CHECK(contains(ab::hypothesis_text(all[4]), "a margin of 10%"));
    CHECK(all[5].is_size);
}

TEST_CASE("a plan that was edited, is broken or is no plan ends in one clear line") {
    const Lab lab;
    const std::string good =
        ab::freeze_plan(lab.resolve(plan_arms + plan_tasks + plan_margins)).text;
    const auto refusal = [](const std::string &text) {
        const std::string found = error_text([&] { ab::parse_plan(text, "p.yaml"); });
        CHECK(found.starts_with("p.yaml"));
        CHECK_FALSE(contains(found, "\n"));
        return found;
    };
    const auto with = [&](const std::string &from, const std::string &to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        return refusal(text);
    };
    CHECK(contains(with("5 points\"", "9 points\""), "the plan was edited"));
    CHECK(contains(with("keel_ab_plan: 1", "keel_ab_plan: 2"), "a plan of version 2"));
    CHECK(contains(with("keel_ab_plan: 1", "keel_ab_plan: [1]"), "p.yaml:3:"));
    CHECK(contains(with("  \"confidence\": \"0.95\"", "  \"confidence\": {}"), "was edited"));
    CHECK(contains(with("  \"confidence\": \"0.95\"", "  \"confidence\":"), "found nothing"));
    CHECK(
        contains(with("contrasts:\n", "contrasts:\n  - {a: b}\n"), "expected a text in the list"));
    CHECK(contains(refusal("a: b\n"), "expected a plan of 'keel ab plan'"));
    CHECK(contains(refusal(""), "expected a plan"));
    CHECK(contains(refusal("keel_ab_plan: 1\n"), "hash"));
    CHECK(contains(refusal("keel_ab_plan: 1\nhash: \"cbf29ce484222325\"\n"), "expected the key"));
    CHECK(contains(refusal("{{{"), "p.yaml:1:"));
    CHECK(contains(refusal("keel_ab_plan: 1\nhash: x\na: " + std::string(5000, 'x') + "\n"),
                   "at most 1200 bytes"));
    CHECK_FALSE(refusal(std::string(size_t{5} << 20, 'x')).empty());
    std::string deep = "keel_ab_plan: 1\nhash: x\na: ";
    for (int i = 0; i < 100; ++i) deep += "[";
    CHECK_FALSE(refusal(deep).empty());
}

TEST_CASE("a frozen plan is never replaced by another one") {
    const Lab lab;
    const fs::path file = lab.folder / "p.yaml";
    const ab::FrozenPlan plan = ab::freeze_plan(lab.resolve(plan_arms + plan_tasks + plan_margins)),
                         other = ab::freeze_plan(lab.resolve(plan_arms + plan_tasks));
    ab::write_plan_file(file, plan);
    ab::write_plan_file(file, plan);
    CHECK(contains(error_text([&] { ab::write_plan_file(file, other); }, ErrorKind::usage),
                   "a frozen plan is not replaced"));
    CHECK(ab::load_plan(file).hash == plan.record.hash);
}

TEST_CASE("a run goes on only under the plan under which it began") {
    const Lab lab;
    const std::string text = plan_arms + plan_tasks + plan_margins;
    ab::RunOptions planned;
    planned.items = 1;
    planned.header.plan = ab::freeze_plan(lab.resolve(text)).record;
    lab.run(text, "planned", planned);
    CHECK(ab::read_header(lab.folder / "planned/results.jsonl").plan->hash ==
          planned.header.plan->hash);
    CHECK(contains(error_text([&] { lab.run(text, "planned"); }), "this run has no plan"));
    ab::RunOptions changed = planned;
    changed.header.plan->changes = {{"margins hit", "5 points", "6 points"}};
    lab.run(text, "planned", changed);
    CHECK(ab::read_header(lab.folder / "planned/results.jsonl").plan->is_changed());
    CHECK(
        contains(error_text([&] { lab.run(text, "planned", planned); }),
                 "changed the plan " + planned.header.plan->hash + ", which cannot be taken back"));
    // A plan that is frozen after the results binds nothing.
    ab::RunOptions one;
    one.items = 1;
    lab.run(text, "free", one);
    CHECK(contains(error_text([&] { lab.run(text, "free", planned); }),
                   "made under no plan, but this run has the plan"));
}
