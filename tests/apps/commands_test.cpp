#include "apps/keel_process.hpp"

#include <algorithm>
#include <regex>
#include <set>

using namespace keel::test;

TEST_CASE("The program describes itself, and every command has help") {
    const ProcessResult version = run_keel({"--version"});
    CHECK(version.code == 0);
    CHECK(std::regex_match(version.out, std::regex("keel [0-9]+\\.[0-9]+\\.[0-9]+\n")));
    CHECK(run_keel({}).code == 0);
    for (const std::vector<std::string> &command : {std::vector<std::string>{},
                                                    {"run"},
                                                    {"serve"},
                                                    {"bench"},
                                                    {"bench", "attention"},
                                                    {"compare"},
                                                    {"inspect"},
                                                    {"quantize"},
                                                    {"tokenize"},
                                                    {"plugins"},
                                                    {"plugins", "list"},
                                                    {"plugins", "show"},
                                                    {"config"},
                                                    {"config", "show"},
                                                    {"config", "check"},
                                                    {"config", "init"}}) {
        std::vector<std::string> asked = command;
        asked.push_back("--help");
        const ProcessResult help = run_keel(asked);
        CHECK(help.code == 0);
        CHECK(help.err.empty());
        CHECK(contains(help.out, "Usage: keel"));
        CHECK(contains(help.out, "keel ")); // the help has an example
    }
}

TEST_CASE("docs/reference/cli.md has every option of every command") {
    const std::string page = read_file(source_folder + "/docs/reference/cli.md");
    REQUIRE_FALSE(page.empty());
    const std::string commands = run_keel({"--help"}).out;
    for (const char *name :
         {"run", "serve", "bench", "compare", "inspect", "tokenize", "plugins", "config"}) {
        INFO(name);
        CHECK(contains(commands, std::string("\n  ") + name + " "));
        CHECK(contains(page, std::string("\n## keel ") + name + "\n"));
    }
    for (const std::vector<std::string> &command : {std::vector<std::string>{"run"},
                                                    {"serve"},
                                                    {"bench"},
                                                    {"compare"},
                                                    {"inspect"},
                                                    {"quantize"},
                                                    {"tokenize"},
                                                    {"plugins", "list"},
                                                    {"plugins", "show"},
                                                    {"config", "show"},
                                                    {"config", "check"},
                                                    {"config", "init"}}) {
        std::vector<std::string> asked = command;
        asked.push_back("--help");
        const std::string help = run_keel(asked).out;
        const std::regex option("--[a-z][a-z-]+");
        for (std::sregex_iterator it(help.begin(), help.end(), option), end; it != end; ++it) {
            INFO(command.front() << ": " << it->str());
            CHECK(contains(page, it->str()));
        }
    }
}

TEST_CASE("A wrong command line gets one line, a suggestion and exit code 2") {
    CHECK(contains(failure(run_keel({"rnu"})), "did you mean 'run'?"));
    CHECK(contains(failure(run_keel({"dance"})), "unknown command 'dance'"));
    CHECK(contains(failure(run_keel({"config", "chek", "x"})), "did you mean 'check'?"));
    // A command that follows another command is an error.
    CHECK(contains(failure(run_keel({"config", "run", quickstart})), "unknown command 'run'"));
    CHECK(contains(failure(run_keel({"eval", "run", "models/tiny"})), "unknown command 'run'"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--promt", "x"})),
                   "did you mean '--prompt'?"));
    CHECK(contains(failure(run_keel({"run", quickstart, "two", "three"})), "quotes"));
    CHECK(contains(failure(run_keel({"run"})), "TARGET"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--seed"})), "--seed"));
    CHECK(contains(failure(run_keel({"run", quickstart, "--log-level", "loud"})), "--log-level"));
    for (const char *other : {"--echo", "--no-stream"}) {
        const std::string line = failure(run_keel({"run", quickstart, "--json", other}));
        CHECK(contains(line, std::string(other) + " and --json exclude each other"));
    }
    CHECK(contains(failure(run_keel({"run", source_folder + "/configs/quickstrt.yaml"})),
                   "did you mean"));
    CHECK(run_keel({"config"}).code == 2);
    CHECK(run_keel({"plugins"}).code == 2);
    // Control characters in an argument are not printed, because they could move the cursor.
    CHECK_FALSE(contains(failure(run_keel({"\x1b[2Jrun"})), "\x1b"));
}

TEST_CASE("an unknown command is an error even with --help") {
    const auto unknown = [](const std::vector<std::string> &arguments) {
        return failure(run_keel(arguments));
    };
    CHECK(contains(unknown({"nonsense", "--help"}),
                   "unknown command 'nonsense'; the commands are run, "));
    CHECK(contains(unknown({"--help", "nonsense"}), "unknown command 'nonsense'"));
    CHECK(contains(unknown({"rnu", "-h"}), "unknown command 'rnu'; did you mean 'run'?"));
    CHECK(contains(unknown({"config", "chek", "--help"}),
                   "unknown command 'chek'; did you mean 'check'?; see 'keel config --help'"));
    CHECK(contains(unknown({"eval", "nonsense", "--help"}), "the commands are perplexity, kl"));
    CHECK(contains(unknown({"ab", "nonsnse", "--help"}),
                   "unknown command 'nonsnse'; the commands are run, "));
    CHECK(contains(unknown({"ab", "reprt", "-h"}), "did you mean 'report'?; see 'keel ab --help'"));
    CHECK(contains(unknown({"bench", "matrx", "--help"}), "did you mean 'matrix'?"));
    CHECK(run_keel({"bench", tiny, "--help"}).code == 0);
    CHECK(contains(unknown({"--version", "nonsense"}), "unknown command 'nonsense'"));
    CHECK(contains(unknown({"--version", "run"}),
                   "unknown option '--version'; 'keel' has this option"));
    // With --help, other errors in the command line are not reported.
    CHECK(run_keel({"run", "--nonsense", "--help"}).code == 0);
    CHECK(run_keel({"run", "--logprobs", "x", "--help"}).code == 0);
    CHECK(run_keel({"--help", "run"}).out == run_keel({"run", "--help"}).out);
}

TEST_CASE("keel ab FILE and keel bench TARGET need no 'run' before them") {
    for (const char *command : {"ab", "bench"}) {
        const std::string file = failure(run_keel({command, "none.yaml"}));
        CHECK(contains(file, "none.yaml: no such file"));
        CHECK(failure(run_keel({command, "run", "none.yaml"})) == file);
        const std::string help = run_keel({command, "--help"}).out;
        CHECK(contains(help, std::string("Usage: keel ") + command + " [OPTIONS] ["));
        CHECK(contains(help, "\n  run "));
        CHECK(contains(help, "\n  report "));
        CHECK(contains(help, "--json"));
        CHECK(contains(failure(run_keel({command, "x", "report", "y"})),
                       std::string("must follow 'keel ") + command + "'"));
    }
}

TEST_CASE("a begin token that only an empty text needs is used by run and shown by inspect") {
    const TinyCopy model;
    auto tokenizer = nlohmann::json::parse(model.read("tokenizer.json"));
    tokenizer["post_processor"] = nullptr; // the post-processor adds the begin token to each text
    model.write("tokenizer.json", tokenizer.dump());
    CHECK(contains(run_keel({"inspect", tiny}).out, "begins with 4094, ends with 4095\n"));
    CHECK(contains(run_keel({"inspect", model.path()}).out,
                   "begins with 4094 only if the text is empty, ends with 4095\n"));
    const auto text = [](const std::string &folder) {
        return parse_json(run_keel({"run", folder, "-p", "", "-n", "4", "--greedy", "--json"}));
    };
    const auto given = text(tiny), started = text(model.path());
    CHECK(started.at("text") == given.at("text"));
    model.write("tokenizer_config.json", "{}");
    model.change_config("bos_token_id", nullptr);
    CHECK(contains(failure(run_keel({"run", model.path(), "-p", ""})),
                   "the model names no token that begins a text; give a prompt"));
}

TEST_CASE("inspect describes a model") {
    const ProcessResult text = run_keel({"inspect", tiny, "--tensors"});
    CHECK(text.code == 0);
    CHECK(contains(text.out, "LlamaForCausalLM"));
    CHECK(contains(text.out, "model.layers.5.mlp.down_proj.weight"));
    const auto json = parse_json(run_keel({"inspect", tiny, "--json", "--tensors", "--verify"}));
    CHECK(json.at("architecture").at("layers") == 6);
    CHECK(json.at("architecture").at("context") == 2048);
    CHECK(json.at("parameters") == 5770496);
    CHECK(json.at("dtypes").at("BF16").at("bytes") == 2 * 5770496);
    CHECK(json.at("files").size() == 1);
    CHECK(json.at("tokenizer").at("bos_id") == 4094);
    CHECK(json.at("tokenizer").at("adds_bos") == true);
    CHECK(json.at("tokenizer").at("end_ids") == std::vector<int>{4095});
    CHECK(json.at("kv_bytes_per_token").at("f16") ==
          6 * 2 * 2 * 64 * 2); // layers, K and V, KV heads, elements, bytes
    CHECK(json.at("kv_bytes_per_token").at("q8_0") == 6 * 2 * 2 * 64 / 32 * 34);
    CHECK(json.at("memory").at("weights_bytes") == 2 * 5770496);
    CHECK(json.at("memory").at("fits") == true);
    CHECK(json.at("tensors").size() == 56);
    CHECK(json.at("verify").at("ok") == true);
    CHECK(json.at("verify").at("tensors") == 56);
}

TEST_CASE("tokenize converts text to ids and back") {
    const std::string text = "Once upon a time…  there\twas\n\"a king\"";
    const auto json = parse_json(run_keel({"tokenize", tiny, text, "--json", "--pieces"}));
    CHECK(json.at("count") == json.at("ids").size());
    CHECK(json.at("pieces").size() == json.at("ids").size());
    const std::vector<int> ids = json.at("ids");
    CHECK(ids.front() == 4094);
    std::string line;
    for (const int id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
    CHECK(run_keel({"tokenize", tiny, text}).out == line + "\n");
    CHECK(run_keel({"tokenize", tiny, text, "--count"}).out == std::to_string(ids.size()) + "\n");
    CHECK(run_keel({"tokenize", tiny, "--decode", line, "--no-special"}).out == text + "\n");
    CHECK(parse_json(run_keel({"tokenize", tiny, "--json", "--no-special", "--decode",
                               nlohmann::json(ids).dump()}))
              .at("text") == text);
    const ProcessResult pieces = run_keel({"tokenize", tiny, "a\tb", "--pieces"});
    CHECK(contains(pieces.out, "<|begin_of_text|>"));
    CHECK(contains(pieces.out, "\\t"));
    ProcessOptions piped;
    piped.input = "Once upon a time\n";
    CHECK(run_keel({"tokenize", tiny, "--no-special"}, piped).out ==
          run_keel({"tokenize", tiny, "Once upon a time", "--no-special"}).out);
    CHECK(contains(failure(run_keel({"tokenize", tiny, "--decode", "1 x 3"})), "'x'"));
    CHECK(
        contains(failure(run_keel({"tokenize", tiny, "--decode", "99999999999"})), "99999999999"));
    CHECK(contains(failure(run_keel({"tokenize", tiny})), "no text"));
}

TEST_CASE("plugins list and show print the plugins that a pipeline can use") {
    const auto list = parse_json(run_keel({"plugins", "list", "--json"}));
    std::set<std::string> usable;
    for (const auto &plugin : list.at("plugins")) {
        if (plugin.at("usable").get<bool>()) usable.insert(plugin.at("name").get<std::string>());
    }
    for (const char *name : {"cpu", "none", "sliding_window", "uniform"})
        CHECK(usable.count(name) == 1);
    CHECK(contains(run_keel({"plugins", "list"}).out, "sliding_window"));

    const auto cpu = parse_json(run_keel({"plugins", "show", "cpu", "--json"}));
    CHECK(cpu.at("kind") == "backend");
    CHECK(cpu.at("devices").size() >= 1);
    const auto params = cpu.at("params");
    CHECK(std::any_of(params.begin(), params.end(), [](const auto &p) {
        return p.at("key") == "isa" && p.at("default") == "auto";
    }));
    CHECK(contains(run_keel({"plugins", "show", "cpu"}).out, "threads"));
    const auto policy = parse_json(run_keel({"plugins", "show", "sliding_window", "--json"}));
    CHECK(policy.at("kind") == "policy");
    CHECK(policy.contains("granularity"));
    CHECK(contains(run_keel({"plugins", "show", "sliding_window"}).out, "window"));
    CHECK(contains(failure(run_keel({"plugins", "show", "sliding_windw"})), "sliding_window"));
    const auto statistics = run_keel({"plugins", "show", "expected_attention"});
    CHECK(contains(statistics.out, "granularity"));
    CHECK_FALSE(contains(statistics.out, "failed"));
}

TEST_CASE("A broken plugin is listed with its reason, and the other plugins are listed too") {
    const TempFolder folder;
    folder.write("broken.so", "not a library");
    ProcessOptions options;
    options.environment = {"KEEL_PLUGIN_PATH=" + folder.path().string()};
    const auto list = parse_json(run_keel({"plugins", "list", "--json"}, options));
    bool broken = false, cpu = false;
    for (const auto &plugin : list.at("plugins")) {
        if (plugin.at("name") == "broken")
            broken =
                !plugin.at("usable").get<bool>() && contains(plugin.at("problem"), "broken.so");
        if (plugin.at("name") == "cpu") cpu = plugin.at("usable");
    }
    CHECK(broken);
    CHECK(cpu);
    CHECK(contains(run_keel({"plugins", "list"}, options).out, "broken: "));
}

TEST_CASE("config show prints the resolved pipeline and the origin of each value") {
    const std::string yaml =
        run_keel({"config", "show", quickstart, "--set", "sampling.seed=77", "--origins"}).out;
    CHECK(contains(yaml, "seed: 77  # --set sampling.seed"));
    CHECK(contains(yaml, "quickstart.yaml:"));
    const auto json = parse_json(run_keel({"config", "show", quickstart, "--json"}));
    CHECK(json.at("kv.dtype").at("value") == "f16");
    CHECK(json.at("strict").at("origin").get<std::string>().find("quickstart.yaml:") !=
          std::string::npos);
    CHECK(json.at("sync.strategy").at("origin") == "default");
    // The printed config is a valid pipeline with the same meaning.
    const TempFolder folder;
    const std::string again =
        folder.write("again.yaml", run_keel({"config", "show", quickstart}).out).string();
    CHECK(run_keel({"config", "show", again}).out == run_keel({"config", "show", quickstart}).out);
}

TEST_CASE("config check shows the cache dtypes of all backends of a hybrid") {
    const TempFolder folder;
    const std::filesystem::path yaml = folder.path() / "hybrid.yaml";
    const auto check = [&](const std::string &kv) {
        std::ofstream(yaml) << "model: " << tiny
                            << "\nkv: {dtype: f16}\nhybrid:\n  backends: {a: {plugin: cpu}, b: "
                            << "{plugin: cpu" << kv << "}}\n  prefill: a\n  decode: b\n";
        const ProcessResult r = run_keel({"config", "check", yaml.string()});
        INFO(r.err);
        CHECK(r.code == 0);
        return r.out;
    };
    CHECK(contains(check(""), ", f16 cache of up to "));
    const std::string both = check(", kv: q8_0");
    CHECK(contains(both, ", f16 on a, q8_0 on b cache of up to "));
}

TEST_CASE("config check accepts every shipped config") {
    for (const auto &entry : std::filesystem::directory_iterator(source_folder + "/configs")) {
        if (entry.path().extension() != ".yaml") continue;
        const ProcessResult r = run_keel({"config", "check", entry.path().string()});
        INFO(r.err);
        // A sanitizer build may not have the GPU backends. Pipelines for these backends are then
        // refused only for this reason.
        const auto is_for_want_of = [&](const std::string &backend) {
            return !std::filesystem::exists(std::string(KEEL_BINARY_DIR) + "/lib/keel/plugins/" +
                                            backend + ".so") &&
                   contains(r.err, "no plugin '" + backend + "'");
        };
        if (is_for_want_of("opencl") || is_for_want_of("vulkan")) {
            CHECK(r.code == 2);
            continue;
        }
        CHECK(r.code == 0);
        CHECK(contains(r.out, ": ok: "));
    }
    CHECK(parse_json(run_keel({"config", "check", quickstart, "--json"})).at("ok") == true);
}

TEST_CASE("config init writes a valid pipeline, and never overwrites another file") {
    const TempFolder folder;
    const std::string file = (folder / "my.yaml").string();
    const ProcessResult made = run_keel({"config", "init", tiny, "-o", file});
    INFO(made.err);
    CHECK(made.code == 0);
    CHECK(made.out.empty());
    const std::string text = read_file(file);
    CHECK(contains(text, "context: 2048"));
    CHECK(contains(text, "# 2048 is all that the model was made for"));
    CHECK(run_keel({"config", "check", file}).code == 0);
    CHECK(
        parse_json(run_keel({"run", file, "-n", "3", "--ignore-eos", "--json"})).at("ids").size() ==
        3);
    CHECK(contains(failure(run_keel({"config", "init", tiny, "-o", file})), "exists already"));
    CHECK(read_file(file) == text);
    CHECK(contains(failure(run_keel(
                       {"config", "init", tiny, "-o", (folder / "no/such/folder.yaml").string()})),
                   "cannot write"));
    // If the pipeline is next to the model, it names the model by a relative path, so that both can
    // be moved together.
    ProcessOptions there;
    there.folder = source_folder;
    CHECK(contains(run_keel({"config", "init", "models/tiny"}, there).out, "path: models/tiny"));
}
