#include "apps/keel_process.hpp"

#include <algorithm>
#include <csignal>
#include <sys/stat.h>
#include <thread>

namespace fs = std::filesystem;
using namespace keel::test;

namespace {

const std::vector<std::string> stat_keys = {"load_seconds",
                                            "first_token_seconds",
                                            "prefill_tokens",
                                            "prefill_seconds",
                                            "prefill_tokens_per_second",
                                            "decode_tokens",
                                            "decode_seconds",
                                            "decode_tokens_per_second",
                                            "kv_bytes",
                                            "kv_peak_bytes",
                                            "evictions",
                                            "evicted_bytes",
                                            "eviction_seconds",
                                            "policy_bytes",
                                            "policy_peak_bytes",
                                            "held_bytes",
                                            "held_peak_bytes",
                                            "freed_bytes",
                                            "submits_per_token",
                                            "waits_per_token"};

} // namespace

TEST_CASE(
    "A model folder is enough to generate text, and the closing line goes to standard error") {
    const ProcessResult r =
        run_keel({"run", tiny, "-p", "Once upon a time", "-n", "12", "--greedy"});
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(r.out.size() > 10);
    CHECK(r.out.ends_with('\n'));
    CHECK(contains(r.err, "time to first token"));
    CHECK(contains(r.err, "tokens/s"));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
}

TEST_CASE("A run counts the bytes of cache and policy, and freed bytes are the difference of held "
          "bytes") {
    std::string prompt;
    for (int i = 0; i < 30; ++i) prompt += "The cat sat on the mat and looked at the dog. ";
    const std::vector<std::string> args = {"run",      tiny,  "-p",       prompt,
                                           "-n",       "60",  "--greedy", "--ignore-eos",
                                           "--policy", "h2o", "--budget", "64"};
    std::vector<std::string> with_json = args;
    with_json.emplace_back("--json");
    const auto stats = parse_json(run_keel(with_json)).at("stats");
    const auto bytes = [&](const char *key) { return stats.at(key).get<uint64_t>(); };
    REQUIRE(bytes("evictions") > 1);
    REQUIRE(bytes("policy_bytes") > 0);
    CHECK(bytes("held_bytes") == bytes("kv_bytes") + bytes("policy_bytes"));
    CHECK(bytes("held_peak_bytes") >= bytes("kv_peak_bytes"));
    CHECK(bytes("held_peak_bytes") <= bytes("kv_peak_bytes") + bytes("policy_peak_bytes"));
    CHECK(bytes("freed_bytes") > 0);
    CHECK(bytes("freed_bytes") <= bytes("held_peak_bytes") - bytes("held_bytes"));
    CHECK(bytes("evicted_bytes") >
          bytes("freed_bytes")); // this counter also includes blocks that were used again
    const ProcessResult r = run_keel(args);
    INFO(r.err);
    CHECK(contains(r.err, " | cache 384.0 KiB + policy "));
    CHECK(contains(r.err, " (peak "));
    CHECK(contains(r.err, " freed) | "));
}

TEST_CASE("run --json prints only one object, with text, ids, stop reason and stats") {
    const ProcessResult r = run_keel(
        {"run", tiny, "-p", "Once upon a time", "-n", "7", "--greedy", "--json", "--ignore-eos"});
    const auto json = parse_json(r);
    CHECK(json.at("ids").size() == 7);
    CHECK(json.at("stop").at("reason") == "max_tokens");
    CHECK(json.at("prompt") == "Once upon a time");
    CHECK_FALSE(json.at("text").get<std::string>().empty());
    for (const std::string &key : stat_keys) {
        INFO(key);
        CHECK(json.at("stats").at(key).is_number());
    }
    CHECK(json.at("stats").at("prefill_tokens") == 6);
    CHECK(json.at("stats").at("decode_tokens") == 6); // the last token needs no step
    // The text is the same as the text that is printed while it is generated.
    const ProcessResult streamed = run_keel(
        {"run", tiny, "-p", "Once upon a time", "-n", "7", "--greedy", "--ignore-eos", "-q"});
    CHECK(streamed.out == json.at("text").get<std::string>() + "\n");
    CHECK(streamed.err.empty());
    CHECK(run_keel({"run", tiny, "-p", "Once upon a time", "-n", "7", "--greedy", "--ignore-eos",
                    "--no-stream", "--echo"})
              .out == "Once upon a time" + streamed.out);
}

TEST_CASE(
    "The prompt comes from -p, from a file, from a pipe or from the pipeline, in this order") {
    const TempFolder folder;
    const std::string file = folder.write("prompt.txt", "The wolf said\n").string();
    const auto prompt = [](std::vector<std::string> arguments, const ProcessOptions &options = {}) {
        arguments.insert(arguments.end(), {"-n", "1", "--json"});
        return parse_json(run_keel(std::move(arguments), options)).at("prompt").get<std::string>();
    };
    ProcessOptions piped;
    piped.input = "A goose\n";
    CHECK(prompt({"run", quickstart}) == "Once upon a time");
    CHECK(prompt({"run", quickstart}, piped) == "A goose");
    CHECK(prompt({"run", tiny}, piped) == "A goose");
    CHECK(prompt({"run", quickstart, "-f", "-"}, piped) == "A goose");
    CHECK(prompt({"run", quickstart, "-f", file}, piped) ==
          "The wolf said"); // the newline at the end of the file is not part of the prompt
    CHECK(prompt({"run", quickstart, "-p", "The king"}, piped) == "The king");
    // An open but idle standard input does not delay the program.
    ProcessOptions idle;
    idle.input_stays_open = true;
    idle.timeout = std::chrono::seconds(30);
    CHECK(prompt({"run", quickstart}, idle) == "Once upon a time");
    CHECK(contains(failure(run_keel({"run", quickstart, "-p", "a", "-f", file})), "-p and -f"));
    CHECK(contains(failure(run_keel({"run", tiny})), "there is no prompt"));
}

TEST_CASE("A prompt file may be a pipe, /dev/stdin or a shell's <(command)") {
    const auto text = [](const std::string &file, const ProcessOptions &options) {
        return parse_json(run_keel({"run", tiny, "-f", file, "-n", "1", "--json"}, options))
            .at("prompt");
    };
    ProcessOptions piped;
    piped.input = "A goose\n";
    CHECK(text("/dev/stdin", piped) == "A goose");

    const TempFolder folder;
    const std::string pipe = (folder / "pipe").string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0); // <(command) in a shell gives a pipe with a path
    std::thread writer([&] { std::ofstream(pipe) << "The wolf said\n"; });
    CHECK(text(pipe, {}) == "The wolf said");
    writer.join();
}

TEST_CASE("An endless prompt file is refused at the size limit") {
    CHECK(contains(failure(run_keel({"run", tiny, "-f", "/dev/zero"})),
                   "/dev/zero: expected at most 256 MiB of text, found more; use a shorter text"));
}

TEST_CASE("Text from a pipe that is not UTF-8 causes no error") {
    ProcessOptions piped;
    piped.input = "caf\xE9 \xF0\x9F and \xFF";
    const auto json = parse_json(run_keel({"run", tiny, "-n", "2", "--json"}, piped));
    CHECK(contains(json.at("prompt"), "\xEF\xBF\xBD"));
}

TEST_CASE("Short options do the same as their keys, and their errors name the option") {
    const auto ids = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"-n", "10", "--json"});
        return parse_json(run_keel(std::move(arguments))).at("ids");
    };
    CHECK(ids({"run", quickstart, "--seed", "5"}) ==
          ids({"run", quickstart, "--set", "sampling.seed=5"}));
    CHECK(ids({"run", quickstart, "--seed", "5"}) != ids({"run", quickstart, "--seed", "6"}));
    CHECK(ids({"run", quickstart, "--greedy"}) ==
          ids({"run", quickstart, "--set", "sampling.temperature=0"}));
    CHECK(ids({"run", tiny, "-p", "The", "--threads", "1", "--kv-dtype", "f32", "--weights", "f32",
               "--context", "64", "--greedy"})
              .size() == 10);

    CHECK(
        contains(failure(run_keel({"run", quickstart, "--temperature", "warm"})), "--temperature"));
    CHECK_FALSE(contains(failure(run_keel({"run", quickstart, "--temperature", "warm"})), "--set"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--set", "sampling.temprature=1"})),
                   "did you mean"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--set", "sampling"})), "sampling"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--policy", "sliding_windw"})),
                   "sliding_windw"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--kv-dtype", "f17"})), "--kv-dtype"));
}

TEST_CASE("The option --stop ends the text before the stop string") {
    const auto full = parse_json(
        run_keel({"run", tiny, "-p", "Once upon a time", "-n", "40", "--greedy", "--json"}));
    const std::string text = full.at("text");
    const size_t space = text.find(' ', 5);
    REQUIRE(space != std::string::npos);
    const std::string word = text.substr(space, 3);
    const auto cut = parse_json(run_keel(
        {"run", tiny, "-p", "Once upon a time", "-n", "40", "--greedy", "--json", "--stop", word}));
    CHECK(cut.at("stop").at("reason") == "stop_string");
    CHECK(cut.at("stop").at("detail") == word);
    CHECK(cut.at("text") == text.substr(0, text.find(word)));
}

TEST_CASE("A full context stops the run and names the key") {
    const auto json = parse_json(run_keel({"run", tiny, "-p", "Once upon a time", "--context", "16",
                                           "-n", "100", "--ignore-eos", "--json"}));
    CHECK(json.at("stop").at("reason") == "cache_full");
    CHECK(contains(json.at("stop").at("detail"), "model.context"));
    const ProcessResult plain = run_keel(
        {"run", tiny, "-p", "Once upon a time", "--context", "16", "-n", "100", "--ignore-eos"});
    CHECK(plain.code == 0);
    CHECK(contains(plain.err, "keel: stopped: "));
    CHECK(contains(plain.err, "model.context"));
    // A prompt that does not fit the context is refused before it is read.
    CHECK(contains(failure(run_keel(
                       {"run", tiny, "-p", "Once upon a time there was a king", "--context", "4"})),
                   "model.context"));
}

TEST_CASE("With a sliding window, a run exceeds the context and counts its evictions") {
    const auto json =
        parse_json(run_keel({"run", quickstart, "-n", "150", "--ignore-eos", "--json"}));
    CHECK(json.at("stop").at("reason") == "max_tokens");
    CHECK(json.at("stats").at("evictions").get<int>() > 0);
}

TEST_CASE("The option --explain prints the kernel of each op to standard error, and --explain-only "
          "stops then") {
    const ProcessResult r = run_keel({"run", quickstart, "-n", "1", "--explain"});
    CHECK(r.code == 0);
    CHECK(contains(r.err, "matmul"));
    CHECK(contains(r.err, "backend cpu"));
    const ProcessResult only = run_keel({"run", quickstart, "--explain-only"});
    CHECK(only.code == 0);
    CHECK(contains(only.out, "matmul"));
    CHECK(only.err.empty());
    const auto json = parse_json(run_keel({"run", quickstart, "--explain-only", "--json"}));
    CHECK(json.at("backend") == "cpu");
    REQUIRE_FALSE(json.at("decode").empty());
    for (const auto &row : json.at("decode")) CHECK(row.at("rung") == "native");
    // The ops of an eviction are in both forms of the output.
    CHECK(contains(only.out, "kv_gather"));
    REQUIRE_FALSE(json.at("eviction").empty());
    CHECK(json.at("eviction").at(0).at("op") == "kv_gather");
}

TEST_CASE("A policy keeps the first 4 tokens, unless --sinks or the config sets another number") {
    const auto explained = [](std::vector<std::string> more) {
        std::vector<std::string> args = {
            "run", tiny, "--explain-only", "--policy", "sliding_window", "--budget", "64"};
        args.insert(args.end(), more.begin(), more.end());
        return run_keel(args);
    };
    CHECK(contains(
        explained({}).out,
        "policy sliding_window, allocator uniform: never evicts the first 4 and the latest 0"));
    CHECK(contains(explained({"--sinks", "16"}).out, "never evicts the first 16 and"));
    CHECK(contains(explained({"--sinks", "16", "--set", "policy.protect.prefix=0"}).out,
                   "never evicts the first 0 and"));
    CHECK(parse_json(explained({"--json"})).at("policy").at("protect").at("prefix") == 4);
}

TEST_CASE("Ctrl-C ends the text with exit code 130, and the closing line is still printed") {
    ProcessOptions options;
    bool sent = false;
    options.on_output = [&](pid_t pid, const std::string &out) {
        if (!sent && out.size() > 20) sent = ::kill(pid, SIGINT) == 0;
    };
    const ProcessResult r =
        run_keel({"run", tiny, "-p", "Once upon a time", "-n", "2000", "--ignore-eos"}, options);
    INFO(r.err);
    REQUIRE(sent);
    CHECK(r.code == 130);
    CHECK(r.out.ends_with('\n'));
    CHECK(contains(r.err, "interrupted"));
    CHECK(contains(r.err, "time to first token"));
}

TEST_CASE(
    "Ctrl-C while weights load is reported as an interruption, not as a fault of the backend") {
    const std::string backend = KEEL_INTERRUPTING_BACKEND;
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"run", tiny, "-p", "Once", "--backend", backend},
          {"bench", tiny, "--backend", backend},
          {"compare", tiny, "--against", "reference", "--no-save", "--backend", backend}}) {
        const ProcessResult r = run_keel(command);
        INFO(command.front());
        CHECK(r.code == 130);
        CHECK(r.out.empty());
        CHECK(r.err == "keel: interrupted\n");
    }
}

TEST_CASE("A second Ctrl-C ends the program immediately") {
    ProcessOptions options;
    options.on_output = [&](pid_t pid, const std::string &) { ::kill(pid, SIGINT); };
    CHECK(run_keel({"run", tiny, "-p", "Once upon a time", "-n", "2000", "--ignore-eos"}, options)
              .code == 130);
}

TEST_CASE(
    "A closed output ends the program without a message, and an output that fails is an error") {
    ProcessOptions closed;
    closed.close_output = true;
    const ProcessResult r =
        run_keel({"run", tiny, "-p", "Once upon a time", "-n", "500", "--ignore-eos"}, closed);
    CHECK(r.code == 0);
    CHECK(r.signal == 0);
    CHECK(r.err.empty());
    CHECK(run_keel({"run", "--help"}, closed).code == 0);
    ProcessOptions full;
    full.output_file = "/dev/full";
    CHECK(contains(failure(run_keel({"run", tiny, "-p", "Once", "-n", "5"}, full), 1),
                   "standard output"));
}

TEST_CASE("Every shipped config for the CPU runs without a fallback") {
    size_t runs = 0;
    for (const auto &entry : fs::directory_iterator(source_folder + "/configs")) {
        if (entry.path().extension() != ".yaml") continue;
        const std::string name = entry.path().stem();
        // tests/plugins/backends runs these configs
        if (name == "opencl" || name == "vulkan") continue;
        INFO(entry.path());
        const ProcessResult result = run_keel({"run", entry.path().string(), "--max-tokens", "8",
                                               "--strict", "--ignore-eos", "--json"});
        const auto json = parse_json(result);
        CHECK(json.at("ids").size() == 8);
        CHECK(json.at("stop").at("reason") == "max_tokens");
        ++runs;
    }
    CHECK(runs >= 5);
}

TEST_CASE("The greedy text is the same as that of Hugging Face transformers") {
    const auto golden =
        nlohmann::json::parse(read_file(source_folder + "/tests/golden/tiny_greedy.json"));
    for (const auto &expected : golden.at("cases")) {
        const std::string text = expected.at("text");
        if (text.empty()) continue; // -p "" is only the beginning-of-text token
        const auto json = parse_json(run_keel({"run", source_folder + "/configs/greedy_f32.yaml",
                                               "-p", text, "-n", "20", "--ignore-eos", "--json"}));
        INFO(text);
        const std::vector<int> ids = json.at("ids");
        const std::vector<int> greedy = expected.at("greedy");
        CHECK(ids == std::vector<int>(greedy.begin(), greedy.begin() + 20));
        return; // one text is enough here, because the tests of the model run all texts
    }
    FAIL("no case with a text");
}

TEST_CASE("Relative paths also work in another folder") {
    ProcessOptions options;
    options.folder = source_folder + "/configs";
    CHECK(run_keel({"run", "quickstart.yaml", "-n", "2"}, options).code == 0);
    CHECK(run_keel({"run", "../models/tiny", "-p", "The", "-n", "2"}, options).code == 0);
    CHECK(run_keel({"run", "../models/tiny/model.safetensors", "-p", "The", "-n", "2"}, options)
              .code == 0);
}

TEST_CASE("An error names the option, --set or the file of the wrong value, and a missing prompt "
          "comes last") {
    const TempFolder folder;
    const std::string text = folder.write("jt.yaml", "just text").string();
    CHECK(contains(failure(run_keel({"run", text, "-n", "2"})),
                   "jt.yaml:1:1: expected a map of keys"));
    CHECK(contains(failure(run_keel({"run", tiny, "-p", "x", "--set", "kv.dtype=f99"})),
                   "--set kv.dtype: "));
    CHECK(
        contains(failure(run_keel({"run", tiny, "-p", "x", "--kv-dtype", "f99"})), "--kv-dtype: "));
    CHECK(contains(failure(run_keel({"run", tiny, "--policy", "nosuch"})), "no plugin 'nosuch'"));
    CHECK(contains(failure(run_keel({"run", tiny})), "there is no prompt"));
}
