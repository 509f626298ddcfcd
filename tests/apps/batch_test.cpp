// Tests of keel run: prompt files, log-probabilities and saved sessions.
#include "apps/keel_process.hpp"

#include <algorithm>
#include <map>

using namespace keel::test;

namespace {

std::vector<nlohmann::json> lines_of(const std::filesystem::path &path) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
}

const std::string prompts = R"({"id": "a", "prompt": "Once upon a time"}
{"id": 7, "prompt": "The wolf said", "max_tokens": 3}

{"id": "c", "prompt": "The king", "seed": 5}
)";

} // namespace

TEST_CASE(
    "A file of prompts is answered line by line, and a second run continues after the first") {
    const TempFolder folder;
    const std::string in = folder.write("in.jsonl", prompts).string(), out = folder / "out.jsonl";
    const std::vector<std::string> command = {"run",          tiny,         "--prompts", in,
                                              "--output",     out,          "-n",        "8",
                                              "--ignore-eos", "--logprobs", "2"};
    const ProcessResult r = run_keel(command);
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(r.out.empty());
    CHECK(contains(r.err, "3 prompts answered"));
    const auto lines = lines_of(out);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].at("id") == "a");
    CHECK(lines[1].at("id") == 7);
    CHECK(lines[0].at("ids").size() == 8);
    CHECK(lines[1].at("ids").size() == 3);
    CHECK(lines[1].at("logprobs").at(2).at("top").size() == 2);
    CHECK(lines[0].at("stop").at("reason") == "max_tokens");
    // Each answer is the same as that of a single run.
    const auto alone = parse_json(run_keel(
        {"run", tiny, "-p", "The king", "--seed", "5", "-n", "8", "--ignore-eos", "--json"}));
    CHECK(lines[2].at("text") == alone.at("text"));

    // A second run has nothing to do.
    const std::string content = read_file(out);
    const ProcessResult again = run_keel(command);
    CHECK(again.code == 0);
    CHECK(contains(again.err, "3 were answered in an earlier run"));
    CHECK(read_file(out) == content);
    // All answers in a file must have been made with the same settings.
    std::vector<std::string> other = command;
    other.insert(other.end(), {"--weights", "q4_0"});
    CHECK(contains(failure(run_keel(other)),
                   "out.jsonl:1: this answer was generated with other settings"));
    CHECK(read_file(out) == content);
    // A run that ended in the middle of a line.
    const size_t second = content.find('\n') + 1;
    folder.write("out.jsonl", content.substr(0, second + 20));
    const ProcessResult mended = run_keel(command);
    CHECK(contains(mended.err, "cut off"));
    CHECK(contains(mended.err, "1 were answered in an earlier run"));
    auto strip = [](nlohmann::json line) {
        line.erase("seconds");
        return line;
    };
    const auto repaired = lines_of(out);
    REQUIRE(repaired.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(strip(repaired[i]) == strip(lines[i]));
}

TEST_CASE(
    "A prompt that does not fit gets an error in its line, and the other prompts get answers") {
    const TempFolder folder;
    const std::string in = folder.write("in.jsonl", prompts).string(), out = folder / "out.jsonl";
    const ProcessResult r =
        run_keel({"run", tiny, "--prompts", in, "--output", out, "--context", "5", "-n", "1"});
    CHECK(r.code == 1);
    CHECK(contains(r.err, "failed; their lines"));
    const auto lines = lines_of(out);
    REQUIRE(lines.size() == 3);
    CHECK(contains(lines[0].at("error"), "model.context"));
    CHECK(lines[2].contains("text"));
    const ProcessResult again =
        run_keel({"run", tiny, "--prompts", in, "--output", out, "--context", "5", "-n", "1"});
    CHECK(again.code == 1); // a prompt that failed does not count as answered later
    CHECK(contains(again.err, "failed in an earlier run"));
}

TEST_CASE("Lines that are not prompts are reported with file and line before anything is loaded or "
          "written") {
    const TempFolder folder;
    const std::string out = folder / "out.jsonl";
    const auto refusal = [&](const std::string &lines) {
        const std::string in = folder.write("in.jsonl", lines).string();
        std::string text = failure(run_keel({"run", tiny, "--prompts", in, "--output", out}));
        CHECK_FALSE(std::filesystem::exists(out));
        return text;
    };
    const std::string good = "{\"id\": 1, \"prompt\": \"a\"}\n";
    CHECK(contains(refusal(good + "{\"id\": 2, \"prompt\"\n"), "in.jsonl:2:"));
    CHECK(contains(refusal(good + "\n[1]\n"),
                   "in.jsonl:3: expected a JSON object, found an array of 1"));
    CHECK(contains(refusal("{\"prompt\": \"a\"}"), "in.jsonl:1: 'id' is missing"));
    CHECK(contains(refusal("{\"id\": 1.5, \"prompt\": \"a\"}"),
                   "id: expected a string or an integer, found 1.5"));
    CHECK(contains(refusal("{\"id\": 1}"), "'prompt' is missing"));
    CHECK(contains(refusal("{\"id\": 1, \"prompt\": 3}"), "prompt: expected a string, found 3"));
    CHECK(contains(refusal(good + good), "in.jsonl:2: the id 1 is already used in line 1"));
    CHECK(contains(refusal("{\"id\": 1, \"prompt\": \"a\", \"max_token\": 3}"),
                   "did you mean 'max_tokens'"));
    CHECK(contains(refusal("{\"id\": 1, \"prompt\": \"a\", \"max_tokens\": 0}"), "from 1 to"));
    CHECK(contains(refusal("{\"id\": 1, \"prompt\": \"a\", \"seed\": -1}"), "from 0 to"));
    CHECK(contains(refusal("{\"id\": 1, \"prompt\": \"a\", \"seed\": 1e999}"), "in.jsonl:1:"));
    CHECK(contains(refusal("\n\n"), "no prompts"));
    CHECK(contains(refusal(std::string(100000, '[')), "nested levels"));
    CHECK(
        contains(refusal("{\"id\": 1, \"prompt\": " + std::string(100000, '[')), "nested levels"));
    CHECK(contains(failure(run_keel({"run", tiny, "--prompts", folder / "none", "--output", out})),
                   "none"));
    CHECK(contains(failure(run_keel({"run", tiny, "--prompts", "x"})), "--output"));
    CHECK(contains(failure(run_keel({"run", tiny, "--output", "x"})), "--prompts"));
    CHECK(contains(failure(run_keel({"run", tiny, "--prompts", "x", "--output", "y", "-p", "z"})),
                   "--prompt"));
}

TEST_CASE("An output file with other content is not changed") {
    const TempFolder folder;
    const std::string in = folder.write("in.jsonl", prompts).string();
    const auto refusal = [&](const std::string &content) {
        const std::string out = folder.write("out.jsonl", content).string();
        std::string text = failure(run_keel({"run", tiny, "--prompts", in, "--output", out}));
        CHECK(read_file(out) == content);
        return text;
    };
    CHECK(contains(refusal("A story.\n"), "out.jsonl:1:1: not valid JSON"));
    CHECK(contains(refusal("A story"), "name another file for the answers"));
    CHECK(contains(refusal("{\"id\": \"a\"}\n"), "out.jsonl:1: "));
    CHECK(contains(refusal("{\"id\": \"a\", \"prompt\": \"Another\"}\n"),
                   "answered for another prompt"));
    CHECK(contains(
        failure(run_keel({"run", tiny, "--prompts", in, "--output", folder.path().string()})),
        "directory"));
    CHECK(contains(failure(run_keel({"run", tiny, "--prompts", in, "--output", "/dev/null"})),
                   "expected a regular file"));
}

TEST_CASE("Prompts that are answered together get the same answers as one by one") {
    const TempFolder folder;
    std::string lines;
    const std::vector<std::string> texts = {"Once upon a time", "The wolf", "The king said",
                                            "A fox", "In the"};
    for (size_t i = 0; i < texts.size(); ++i)
        lines += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"" + texts[i] +
                 "\", \"seed\": " + std::to_string(i) +
                 ", \"max_tokens\": " + std::to_string(4 + 5 * (i % 3)) + "}\n";
    // One prompt does not fit. It is in the middle of the others.
    std::string long_text;
    for (int i = 0; i < 200; ++i) long_text += "word ";
    lines += "{\"id\": \"long\", \"prompt\": \"" + long_text +
             "\"}\n{\"id\": \"last\", \"prompt\": \"Then\"}\n";
    const std::string in = folder.write("in.jsonl", lines).string();
    const auto answers = [&](const std::string &out, std::vector<std::string> more) {
        std::vector<std::string> command = {"run",        tiny,         "--prompts",   in,
                                            "--output",   folder / out, "--weights",   "q4_0",
                                            "--kv-dtype", "f32",        "--context",   "100",
                                            "-n",         "12",         "--ignore-eos"};
        command.insert(command.end(), more.begin(), more.end());
        const ProcessResult r = run_keel(command);
        INFO(r.err);
        CHECK(r.code == 1); // one prompt could not be answered
        CHECK(contains(r.err, "6 prompts answered"));
        std::map<std::string, nlohmann::json> by_id;
        for (nlohmann::json &line : lines_of(folder / out)) {
            line.erase("seconds");
            by_id[line.at("id").dump()] = line;
        }
        return by_id;
    };
    const auto one = answers("one.jsonl", {});
    REQUIRE(one.size() == 7);
    CHECK(contains(one.at("\"long\"").at("error").get<std::string>(), "model.context"));
    CHECK(answers("three.jsonl", {"--batch", "3"}) == one);
    CHECK(answers("eight.jsonl", {"--batch", "8"}) == one);
    CHECK(contains(failure(run_keel({"run", tiny, "-p", "a", "--batch", "2"})), "--prompts"));
    CHECK(contains(
        failure(run_keel({"run", tiny, "--prompts", in, "--output", folder / "x", "--batch", "0"})),
        "--batch"));
    CHECK(contains(failure(run_keel({"run", tiny, "--prompts", in, "--output", folder / "x",
                                     "--batch", "2", "--set", "kv.max_mib=8"})),
                   "kv.max_mib"));
}

TEST_CASE("Log-probabilities are printed after the text, or in its JSON") {
    const std::vector<std::string> base = {"run", tiny, "-p",       "Once upon a time",
                                           "-n",  "5",  "--greedy", "--ignore-eos"};
    auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), base.begin(), base.end());
        return run_keel(more);
    };
    const auto json = parse_json(with({"--json", "--logprobs", "3"}));
    REQUIRE(json.at("logprobs").size() == 5);
    for (size_t i = 0; i < 5; ++i) {
        const auto &token = json.at("logprobs").at(i);
        CHECK(token.at("id") == json.at("ids").at(i));
        CHECK(token.at("logprob").get<double>() <= 0);
        REQUIRE(token.at("top").size() == 3);
        // greedy sampling takes the most likely token
        CHECK(token.at("top").at(0).at("id") == token.at("id"));
        CHECK(token.at("top").at(0).at("logprob") >= token.at("top").at(1).at("logprob"));
    }
    CHECK(json.at("ids") == parse_json(with({"--json"})).at("ids"));
    const ProcessResult text = with({"--logprobs", "2", "-q"});
    CHECK(text.out.starts_with(json.at("text").get<std::string>() + "\nlogprob"));
    CHECK(std::count(text.out.begin(), text.out.end(), '\n') == 7);
    CHECK(contains(failure(with({"--logprobs", "-1"})), "--logprobs"));
}

TEST_CASE("A saved session continues in another process as if it had not ended") {
    const TempFolder folder;
    const std::string file = folder / "s";
    for (const std::string &target : {tiny, quickstart}) {
        const auto run = [&](std::vector<std::string> more) {
            std::vector<std::string> all = {"run", target, "--seed", "3", "--ignore-eos", "--json"};
            if (std::find(more.begin(), more.end(), "--load-session") != more.end())
                all.erase(all.begin() + 2, all.begin() + 4);
            all.insert(all.end(), more.begin(), more.end());
            return parse_json(run_keel(all));
        };
        const auto whole = run({"-p", "Once upon a time", "-n", "90"});
        const auto first = run({"-p", "Once upon a time", "-n", "60", "--save-session", file});
        const auto second = run({"-n", "30", "--load-session", file});
        auto ids = first.at("ids").get<std::vector<int>>();
        for (const int id : second.at("ids")) ids.push_back(id);
        CHECK(ids == whole.at("ids").get<std::vector<int>>());
        CHECK(second.at("stats").at("prefill_tokens") == 0);
        // A loaded session continues with another piece of the prompt.
        const auto more = run({"-n", "5", "--load-session", file, "-p", " And then"});
        CHECK(more.at("stats").at("prefill_tokens").get<int>() < 5);
    }
    CHECK(contains(failure(run_keel({"run", tiny, "--load-session", file, "--kv-dtype", "q8_0"})),
                   "kv.key_dtype"));
    CHECK(contains(failure(run_keel({"run", tiny, "--load-session", tiny + "/config.json"})),
                   "not a saved session"));
    CHECK(
        contains(failure(run_keel({"run", tiny, "-p", "a", "--save-session", "/no/such/folder/s"})),
                 "cannot be written"));
}
