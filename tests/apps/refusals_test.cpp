#include "apps/keel_process.hpp"

using namespace keel::test;

namespace {

struct Refusal {
    std::vector<std::string> arguments;
    std::vector<std::string> parts; // texts that the line must contain
};

void check(const std::vector<Refusal> &refusals) {
    for (const Refusal &refusal : refusals) {
        std::string shown = "keel";
        for (const std::string &argument : refusal.arguments) shown += " " + argument;
        const std::string line = failure(run_keel(refusal.arguments));
        INFO(shown << "\n" << line);
        for (const std::string &part : refusal.parts) {
            INFO("expected: " << part);
            CHECK(contains(line, part));
        }
        CHECK_FALSE(contains(line, "Could not convert"));
        CHECK_FALSE(contains(line, " requires "));
        CHECK_FALSE(contains(line, " excludes "));
    }
}

} // namespace

TEST_CASE("a wrong command line names the option, what was expected and what was found") {
    const std::string range = "--logprobs: expected an integer from 0 to 1000, found ";
    check({
        {{"bench", tiny, "--prefill", "x"}, {"--prefill: expected integers", "found 'x'"}},
        {{"compare", tiny, "--against", "reference", "--steps", "x"},
         {"--steps: expected an integer, found 'x'", "see 'keel compare --help'"}},
        {{"run", tiny, "-p", "a", "--logprobs", "-1"}, {range + "'-1'"}},
        {{"run", tiny, "-p", "a", "--logprobs", "5000"}, {range + "'5000'"}},
        {{"run", tiny, "-p", "a", "--logprobs", "abc"}, {range + "'abc'"}},
        {{"compare", tiny, "--against", "reference", "--bound", "x"},
         {"--bound: expected a number from 0 to 1000000, found 'x'"}},
        {{"run", tiny, "--log-level", "warnin"},
         {"--log-level: expected one of debug, info, warning, error, off, found 'warnin'; did you "
          "mean "
          "'warning'?"}},
        {{"run", tiny, "-p", "a", "--echo=maybe"}, {"--echo: expected no value, found 'maybe'"}},
        {{"run", tiny, "-p", "a", "-q=4"}, {"-q: expected no value, found '4'"}},
        {{"run"}, {"expected TARGET, found none; TARGET is: a pipeline file"}},
        {{"eval", "kl", tiny, "--text", "x"},
         {"expected --against, found none; --against is: the reference"}},
        {{"run", tiny, "-p"}, {"-p: expected TEXT after this option, found none"}},
        {{"run", tiny, "-qp"}, {"-p: expected TEXT after this option, found none"}},
        {{"run", tiny, "--threads"}, {"--threads: expected N after this option, found none"}},
        {{"run", tiny, "-f", "a", "-f", "b"}, {"-f: expected this option once, found it 2 times"}},
        {{"run", tiny, "--file", "a", "-qf", "b"},
         {"--file: expected this option once, found it 2 times"}},
        {{"run", tiny, "--output", "x"}, {"--output: expected --prompts too, found none"}},
        {{"eval", "perplexity", tiny, "--text", "x", "--prefix", "4"},
         {"--prefix: expected --continuation too, found none"}},
        {{"run", tiny, "--explain-only", "--trace", "x"},
         {"--trace and --explain-only exclude each other; use only one of them"}},
        {{"eval"}, {"expected a command, found none; the commands are perplexity, kl"}},
        {{"config"}, {"the commands are show, check, init; see 'keel config --help'"}},
        {{"bench", tiny, "--batch", "1,257"},
         {"--batch: expected integers from 1 to 256 separated by ',', found '257'"}},
        {{"ab"}, {"expected FILE, found none; FILE is: the experiment"}},
        {{"ab", "x.yaml", "--resume", "--no-resume"},
         {"--resume and --no-resume exclude each other"}},
    });
}

TEST_CASE("Contradicting arguments are refused, and the error names both") {
    const TempFolder folder;
    const std::string text = folder.write("text.txt", "hello").string();
    const std::string yaml = folder
                                 .write("full.yaml", "model: " + tiny +
                                                         "\nbackend: cpu\npolicy: none\n"
                                                         "generation: {prompt: Once}\n")
                                 .string();
    check({
        {{"tokenize", tiny, "TEXT", "-f", text}, {"TEXT and -f exclude each other"}},
        {{"tokenize", tiny, "TEXT", "--decode", "1", "2"},
         {"--decode", "TEXT", "exclude each other"}},
        {{"tokenize", tiny, "--pieces", "--decode", "1"},
         {"--pieces", "--decode", "exclude each other"}},
        {{"tokenize", tiny, "TEXT", "--pieces", "--count"},
         {"--pieces", "--count", "exclude each other"}},
        {{"run", tiny, "-p", "a", "--greedy", "--temperature", "0.5"},
         {"--greedy", "--temperature"}},
        {{"run", tiny, "-p", "a", "--greedy", "--top-k", "5"}, {"--greedy", "--top-k"}},
        {{"run", tiny, "-p", "a", "--top-p", "0.5", "--greedy"}, {"--greedy", "--top-p"}},
        {{"run", tiny, "-p", "a", "--greedy", "--min-p", "0.5"}, {"--greedy", "--min-p"}},
        {{"chat", tiny, "--template", "chatml", "--greedy", "--seed", "5"}, {"--greedy", "--seed"}},
        {{"run", tiny, "-p", "a", "--greedy", "--set", "sampling.temperature=0.5"},
         {"--greedy and --set sampling.temperature = 0.5 contradict each other"}},
        {{"run", tiny, "-p", "a", "--budget", "64"},
         {"--budget and policy none exclude each other", "--policy"}},
        {{"bench", tiny, "--policy", "none", "--budget", "64"},
         {"--budget and policy none exclude each other"}},
        {{"run", tiny, "-p", "a", "--sinks", "8"},
         {"--sinks and policy none exclude each other", "or remove --sinks"}},
        // The policy `none` is recognized, no matter how the command line names it.
        {{"run", tiny, "-p", "a", "--budget", "64", "--policy",
          std::string(KEEL_BINARY_DIR) + "/lib/keel/plugins/none.so"},
         {"--budget and policy none exclude each other"}},
        {{"run", yaml, "--budget", "64"},
         {"--budget and policy none (", "full.yaml:3:9) exclude each other"}},
    });
    // This combination is allowed: a penalty can change which token is the most likely.
    CHECK(run_keel({"run", tiny, "-p", "a", "-n", "1", "--greedy", "--repetition-penalty", "1.2"})
              .code == 0);
    CHECK(
        run_keel({"run", tiny, "-p", "a", "-n", "1", "--temperature", "0.5", "--seed", "3"}).code ==
        0);
}

TEST_CASE("A budget that the protected tokens fill is refused with the numbers and the keys") {
    const auto refusal = [](const char *budget, std::vector<std::string> more) {
        std::vector<std::string> args = {
            "run", tiny, "-p", "Once", "-n", "1", "--policy", "sliding_window", "--budget", budget};
        args.insert(args.end(), more.begin(), more.end());
        const ProcessResult r = run_keel(args);
        CHECK(r.code == (r.err.empty() ? 0 : 2));
        return r.err;
    };
    const std::string eight = refusal("8", {"--sinks", "8"});
    CHECK(contains(eight, "policy.budget.tokens: a budget of 8 slots leaves no room"));
    CHECK(contains(eight, "policy.protect.prefix 8 + policy.protect.recent 0"));
    CHECK(contains(eight, "at least 9"));
    // Keel does not lower a value silently, not even a default.
    CHECK(contains(refusal("4", {}), "policy.protect.prefix 4 + policy.protect.recent 0"));
    CHECK(contains(refusal("64", {"--sinks", "-1"}), "--sinks: expected"));
}

TEST_CASE("If a window and a budget differ, a warning says which one is used") {
    const auto warning = [](const char *budget, const char *window) {
        const ProcessResult r = run_keel(
            {"run", tiny, "-p", "Once", "-n", "1", "--policy", "sliding_window", "--budget", budget,
             "--set", std::string("policy.params.window=") + window, "--sinks", "4"});
        CHECK(r.code == 0);
        return r.err;
    };
    CHECK(contains(warning("64", "32"),
                   "keel: warning: policy.budget.tokens allows 64 slots per head"));
    CHECK(contains(warning("64", "32"), "so an eviction leaves 36"));
    CHECK(contains(warning("64", "200"), "so an eviction leaves 64"));
    CHECK_FALSE(contains(warning("64", "60"), "warning"));
    CHECK_FALSE(contains(warning("64", "0"), "warning"));
}

TEST_CASE("config init refuses a backend that does not exist, and writes nothing") {
    const TempFolder folder;
    const std::string file = (folder / "my.yaml").string();
    check({{{"config", "init", tiny, "--backend", "nosuch", "-o", file},
            {"--backend: no plugin 'nosuch': no nosuch.so in ", "keel/plugins"}},
           {{"config", "init", tiny, "--backend", "nosuch"}, {"no plugin 'nosuch'"}},
           {{"config", "init", tiny, "--backend", "./nosuch.so", "-o", file}, {"nosuch.so"}},
           {{"config", "init", tiny, "--backend", "none", "-o", file},
            {"--backend: ", "but this key needs a backend"}}});
    CHECK_FALSE(std::filesystem::exists(file));
    CHECK(run_keel({"config", "init", tiny, "--backend", "reference", "-o", file}).code == 0);
}

TEST_CASE(
    "A kv.max_mib below one block for each head is refused before the run, also by config check") {
    const TempFolder folder;
    const std::string file =
        folder.write("p.yaml", "model: " + tiny + "\nbackend: cpu\nkv: {max_mib: 0.01}\n").string();
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"config", "check", file}, {"run", file, "-p", "Once"}}) {
        const std::string line = failure(run_keel(command));
        INFO(line);
        CHECK(contains(line, "p.yaml:3:15: expected 'kv.max_mib' to hold a block of "));
        CHECK(contains(line, "found 0.01"));
    }
}

TEST_CASE("A missing model is reported with the line of the pipeline") {
    const TempFolder folder;
    const std::string file = folder.write("p.yaml", "model: ../nosuch\nbackend: cpu\n").string();
    folder.write("text.txt", "hello");
    const std::string text = (folder / "text.txt").string();
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"run", file, "-p", "Once"},
          {"config", "check", file},
          {"eval", "perplexity", file, "--text", text}}) {
        const std::string line = failure(run_keel(command));
        INFO(line);
        CHECK(contains(line, "p.yaml:1:8: 'model.path': "));
        CHECK(contains(
            line,
            "nosuch: no such file or folder; expected the folder of a model, or a GGUF file"));
    }
}

TEST_CASE("Messages name the file, the place and the reason") {
    const TempFolder folder;
    const std::string empty = folder.write("empty.txt", "").string();
    const std::string words =
        folder.write("words.txt", "Once upon a time there was a king in a land").string();
    const std::string prompts =
        folder.write("prompts.jsonl", "{\"id\": 1, \"prompt\": \"a\"}\n").string();
    const std::string heldout = tiny + "/heldout.txt";
    folder.write("op/op.json", R"({"format": "keel-op/9"})");
    check({
        {{"eval", "perplexity", tiny, "--text", empty},
         {"empty.txt: expected a text to score, found an empty file"}},
        {{"eval", "kl", tiny, "--against", tiny, "--text", empty},
         {"empty.txt: expected a text to score"}},
        {{"eval", "perplexity", tiny, "--text", words, "--window", "8", "--stride", "9"},
         {"error: --stride: expected 1 to 8", "found 9", "tokens between the windows unscored"}},
        {{"eval", "perplexity", tiny, "--text", words, "--window", "1"},
         {"error: --window: expected 2 to ", "found 1"}},
        {{"eval", "kl", tiny, "--against", tiny, "--text", words, "--window", "1"},
         {"error: --window: expected 2 to "}},
        {{"eval", "perplexity", tiny, "--text", words, "--context", "1"},
         {"error: --context: expected a window of at least 2 tokens", "found 1"}},
        {{"eval", "perplexity", tiny, "--text", words, "--prefix", "4", "--continuation", "2",
          "--places", "2000000"},
         {"error: --places: expected 1 to 1000000, found 2000000"}},
        {{"eval", "perplexity", tiny, "--text", heldout, "--window", "99999"},
         {"a window of 99999 tokens (this text fills ", "does not fit the cache of ",
          "holds 2048 tokens"}},
        {{"replay-op", tiny},
         {tiny + ": the folder has no op.json; expected a folder that `keel compare` wrote"}},
        {{"replay-op", (folder / "op").string()},
         {"op.json:1: format: expected the format 'keel-op/1'", "found \"keel-op/9\""}},
        {{"run", tiny, "--prompts", prompts, "--output", prompts},
         {"--output", "this is the file of --prompts"}},
    });
    CHECK(read_file(prompts) == "{\"id\": 1, \"prompt\": \"a\"}\n");
    const ProcessResult one =
        run_keel({"eval", "perplexity", tiny, "--text", words, "--window", "64", "--stride", "64"});
    INFO(one.out << one.err);
    CHECK(one.code == 0);
    CHECK(contains(one.out, "1 window of up to 64 tokens, 64 apart"));
}

TEST_CASE("An error in an item of a matrix names that item's line and column") {
    const TempFolder folder;
    const auto fault = [&](const std::string &model, const std::string &backend,
                           const std::string &kv, const std::string &policy,
                           const std::string &length) {
        const std::string file =
            folder
                .write("m.yaml", "models:\n  - " + model + "\nbackends:\n  - " + backend +
                                     "\nkv:\n  - " + kv + "\npolicies:\n  - " + policy +
                                     "\nlengths:\n  - 16\n  - " + length + "\ndecode: 4\n")
                .string();
        const std::string line = failure(run_keel({"bench", "matrix", file, "--dry-run"}));
        return line.substr(std::min(line.find("m.yaml"), line.size()));
    };
    CHECK(fault("/no/such/model", "cpu", "f16", "none", "32").starts_with("m.yaml:2:5: "));
    CHECK(fault(tiny, "nosuch", "f16", "none", "32").starts_with("m.yaml:4:5: "));
    CHECK(fault(tiny, "{plugin: cpu, set: {backend.params.threads: 100000}}", "f16", "none", "32")
              .starts_with("m.yaml:4:25: "));
    CHECK(fault(tiny, "cpu", "f17", "none", "32").starts_with("m.yaml:6:5: "));
    CHECK(fault(tiny, "cpu", "{dtype: f16, set: {kv.max_mib: 0.01}}", "none", "32")
              .starts_with("m.yaml:6:24: "));
    CHECK(fault(tiny, "cpu", "f16", "nosuch", "32").starts_with("m.yaml:8:5: "));
    CHECK(fault(tiny, "cpu", "f16", "sliding_window", "32").starts_with("m.yaml:8:5: "));
    CHECK(fault(tiny, "cpu", "f16", "none", "5000").starts_with("m.yaml:11:5: "));
    CHECK_FALSE(contains(fault(tiny, "cpu", "f17", "none", "32"), "--set"));
}

TEST_CASE("A bad weight in a GGUF file is reported with its GGUF name") {
    const TinyCopy model;
    const TempFolder folder;
    const std::string file = (folder / "tiny.gguf").string();
    REQUIRE(run_keel({"quantize", model.path(), file, "--type", "f32", "-q"}).code == 0);
    std::string bytes = read_file(file);
    // The test needs an f32 far after the header. The last matrix of blk.5 is near the end of the
    // file.
    const size_t at = (bytes.size() - 4096) & ~size_t{3};
    bytes.replace(at, 4, std::string("\0\0\xC0\x7F", 4));
    folder.write("tiny.gguf", bytes);
    const ProcessResult found = run_keel({"inspect", file, "--verify"});
    CHECK(found.code == 1);
    const size_t quote = found.err.find("tensor '");
    REQUIRE(quote != std::string::npos);
    const std::string name = found.err.substr(quote, found.err.find('\'', quote + 8) - quote + 1);
    CHECK_FALSE(contains(name, "model.layers"));
    const std::string line =
        failure(run_keel({"run", file, "-p", "Once upon a time", "-n", "5", "-q"}), 1);
    INFO(line);
    CHECK(contains(line, "tiny.gguf: in " + name + ", 1 of "));
}
