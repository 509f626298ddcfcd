// Tests of keel compare and keel replay-op that run the program.
#include "apps/keel_process.hpp"

using namespace keel::test;

TEST_CASE(
    "keel compare has exit code 0 within the bounds, otherwise 1, and saves the op's inputs") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    const ProcessResult good =
        run_in(here, {"compare", tiny, "--against", "reference", "--tokens", "4", "--steps", "1"});
    INFO(good.out << good.err);
    CHECK(good.code == 0);
    CHECK(contains(good.out, "every op is within its bound"));
    CHECK(std::filesystem::is_empty(folder.path()));

    const ProcessResult bad =
        run_in(here, {"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against", "reference",
                      "--prompt", "Once upon a time", "--steps", "2"});
    INFO(bad.out << bad.err);
    CHECK(bad.code == 1);
    CHECK(contains(bad.out, "BEYOND ITS BOUND"));
    CHECK(contains(bad.out, "decode layer 3: down (matmul)"));
    CHECK(std::filesystem::exists(folder / "keel-compare" / "op.json"));

    // With a `fast` backend, the bound of a product is larger than this error. With `exact`, the
    // error is found.
    const ProcessResult json = run_in(
        here, {"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against", tiny, "--against-set",
               "backend.params.compute=exact", "--steps", "1", "--json", "--save", here + "/mine"});
    INFO(json.out << json.err);
    CHECK(json.code == 1);
    const auto object = nlohmann::json::parse(json.out);
    CHECK(object.at("passed") == false);
    CHECK(object.at("finding").at("layer") == 3);
    CHECK(object.at("finding").at("saved") == here + "/mine");
    CHECK(object.at("rows").size() >= 12);

    const ProcessResult again =
        run_in(here, {"compare", tiny, "--against", "reference", "--save", here + "/mine"});
    CHECK(again.code == 2);
    CHECK(contains(again.err, "this path exists already"));
    CHECK(run_in(here, {"compare", tiny}).code == 2);
    CHECK(run_in(here, {"compare", tiny, "--against", "nothing.yaml"}).code == 2);
    CHECK(run_in(here, {"compare", tiny, "--against", "reference", "--against-set", "kv.dtype=f32"})
              .code == 2);
    for (const std::vector<std::string> &wrong : std::vector<std::vector<std::string>>{
             {"--bound", "nan"},
             {"--prompt", ""},
             {"--policy", "random", "--budget", "40", "--against-set", "policy.plugin=random",
              "--against-set", "policy.budget.tokens=40", "--against-set",
              "policy.params.seed=4"}}) {
        std::vector<std::string> arguments{"compare",   tiny,      "--against", tiny,
                                           "--no-save", "--steps", "2"};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const ProcessResult refused = run_in(here, arguments);
        INFO(wrong[0] << " " << refused.out << refused.err);
        CHECK(refused.code == 2);
        CHECK(
            contains(refused.err, wrong.size() == 2 ? wrong[0] + ": " : "policy.params.seed is "));
    }
    for (const char *set : {"kv.dtype=f99", "kv.dtype"}) {
        const ProcessResult wrong =
            run_in(here, {"compare", tiny, "--against", tiny, "--against-set", set});
        INFO(wrong.err);
        CHECK(wrong.code == 2);
        CHECK(contains(wrong.err, "--against-set kv.dtype: "));
    }
}

TEST_CASE("keel replay-op repeats an op that keel compare saved") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    const ProcessResult compare =
        run_in(here, {"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against", "reference",
                      "--tokens", "4", "--steps", "1"});
    CHECK(compare.code == 1);
    const ProcessResult good = run_in(here, {"replay-op", "keel-compare"});
    INFO(good.out << good.err);
    CHECK(good.code == 0);
    CHECK(contains(good.out, "within"));
    CHECK(contains(good.out, "the saved values have an error of"));
    const ProcessResult tight = run_in(here, {"replay-op", "keel-compare/op.json", "--param",
                                              "compute=exact", "--bound", "0", "--json"});
    INFO(tight.out << tight.err);
    CHECK(tight.code <= 1);
    CHECK(nlohmann::json::parse(tight.out).at("passed") == (tight.code == 0));
    CHECK(run_in(here, {"replay-op", "nothing"}).code == 2);
    CHECK(run_in(here, {"replay-op", "keel-compare", "--param", "compute=odd"}).code == 2);
    CHECK(run_in(here, {"replay-op", "keel-compare", "--param", "x"}).code == 2);
    CHECK(run_in(here, {"replay-op", heldout}).code == 2);
}
