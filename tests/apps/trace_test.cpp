// Tests of keel run --trace that run the program.
#include "apps/keel_process.hpp"

using namespace keel::test;

TEST_CASE("A trace is complete JSON even after an interruption or an error") {
    const TempFolder folder;
    const std::string here = folder.path().string(), file = here + "/t.json";
    const ProcessResult bench =
        run_keel({"bench", tiny, "--prefill", "8", "--decode", "2", "--depth", "0", "-r", "1",
                  "--probe-mib", "0", "--trace", file});
    INFO(bench.err);
    REQUIRE(bench.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    const ProcessResult kl = run_keel({"eval", "kl", tiny, "--against", tiny, "--text", heldout,
                                       "--max-tokens", "40", "--window", "32", "--trace", file});
    INFO(kl.err);
    REQUIRE(kl.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    ProcessOptions question;
    question.input = "Who are you?\n";
    const ProcessResult chat =
        run_keel({"chat", tiny, "--template", "chatml", "-n", "4", "--trace", file}, question);
    INFO(chat.err);
    REQUIRE(chat.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    // The run is killed while it works. An early kill is the better test, but on a busy machine the
    // run may not have begun by then.
    size_t events = 0;
    for (const int seconds : {2, 20}) {
        ProcessOptions kill;
        kill.timeout = std::chrono::seconds(seconds);
        const ProcessResult killed =
            run_keel({"bench", tiny, "--prefill", "0", "--decode", "1500", "--depth", "0", "-r",
                      "1000", "--probe-mib", "0", "--trace", file},
                     kill);
        CHECK(killed.timed_out);
        events = read_json(file).at("traceEvents").size();
        if (events > 100) break;
    }
    CHECK(events > 100);
    // This run fails because the cache is full.
    const ProcessResult failed =
        run_keel({"eval", "perplexity", tiny, "--text", heldout, "--set", "kv.max_mib=0.2",
                  "--max-tokens", "600", "--trace", file});
    INFO(failed.err);
    CHECK(failed.code == 2);
    CHECK(read_json(file).contains("traceEvents"));
    CHECK(run_keel({"bench", tiny, "--trace", heldout}).code == 2);
    CHECK(run_keel({"bench", tiny, "--trace", here}).code == 2);
}
