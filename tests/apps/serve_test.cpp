#include "apps/keel_process.hpp"
#include "server/raw_client.hpp"

#include <csignal>
#include <functional>
#include <thread>

using namespace keel::test;
using keel::server::test::http_request;
using keel::server::test::RawClient;
using keel::server::test::RawResponse;
using Json = nlohmann::json;

namespace {

// Runs `keel serve` and calls `use` with the port as soon as the server listens. Then the server
// gets SIGTERM.
ProcessResult serve(std::vector<std::string> arguments,
                    const std::function<void(uint16_t port)> &use) {
    ProcessOptions options;
    bool was_used = false;
    options.on_output = [&](pid_t pid, const std::string &out) {
        const size_t at = out.find("http://127.0.0.1:");
        if (was_used || at == std::string::npos || out.back() != '\n') return;
        was_used = true;
        use(static_cast<uint16_t>(std::stoi(out.substr(at + 17))));
        ::kill(pid, SIGTERM);
    };
    arguments.insert(arguments.begin(), "serve");
    arguments.insert(arguments.end(), {"--port", "0"});
    ProcessResult result = run_keel(std::move(arguments), options);
    INFO(result.out << result.err);
    CHECK(was_used);
    CHECK(result.code == 0);
    return result;
}

RawResponse send(uint16_t port, const std::string &request) {
    RawClient client(port);
    client.send(request);
    return client.read_response();
}

void wait_until_ready(uint16_t port) {
    for (int i = 0; i < 400 && send(port, http_request("GET", "/ready")).status != 200; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(25));
}

Json post(uint16_t port, const std::string &path, const Json &body) {
    const RawResponse response = send(port, http_request("POST", path, body.dump()));
    INFO(response.body);
    REQUIRE(response.status == 200);
    return Json::parse(response.body);
}

} // namespace

TEST_CASE("serve writes the text of run, and a policy of a request evicts") {
    const std::string prompt = "Once upon a time";
    const ProcessResult run = run_keel({"run", tiny, "-p", prompt, "--greedy", "-n", "40", "-q"});
    REQUIRE(run.code == 0);
    const ProcessResult served = serve({tiny, "--chat-template", "chatml"}, [&](uint16_t port) {
        wait_until_ready(port);
        const Json body = {{"prompt", prompt}, {"temperature", 0}, {"max_tokens", 40}};
        const Json answer = post(port, "/v1/completions", body);
        CHECK(contains(run.out, answer.at("choices").at(0).at("text").get<std::string>()));
        const Json again = post(port, "/v1/completions", body);
        CHECK(again.at("choices") == answer.at("choices"));
        CHECK(again.at("usage").at("prompt_tokens_details").at("cached_tokens") > 0);
        Json evicting = body;
        evicting["keel"] = {{"policy", "sliding_window"}, {"budget", 16}};
        const Json used = post(port, "/v1/completions", evicting).at("usage").at("keel");
        CHECK(used.at("policy") == "sliding_window");
        CHECK(used.at("evicted_tokens") > 0);
        CHECK(used.at("kept_tokens") < 40);
        CHECK(used.at("cache_peak_bytes") > 0);
        const Json chat =
            post(port, "/v1/chat/completions",
                 {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"max_tokens", 5}});
        CHECK(chat.at("usage").at("completion_tokens") == 5);
        const ProcessResult status =
            run_keel({"serve", "--status", "http://127.0.0.1:" + std::to_string(port)});
        CHECK(parse_json(status).at("scheduler").at("generated_tokens") == 125);
    });
    CHECK(contains(served.err, "\"path\":\"/v1/completions\""));
    CHECK_FALSE(contains(served.err, prompt));
}

TEST_CASE("serve scores a prompt with as many entries as tokens, and none is infinite") {
    const ProcessResult tokens =
        run_keel({"tokenize", tiny, "The little dog sat down.", "--no-special", "--json"});
    const Json ids = parse_json(tokens).at("ids");
    serve({tiny}, [&](uint16_t port) {
        wait_until_ready(port);
        const Json answer = post(port, "/v1/completions",
                                 {{"prompt", Json::array({ids, ids})},
                                  {"temperature", 0},
                                  {"max_tokens", 1},
                                  {"logprobs", 1},
                                  {"echo", true}});
        CHECK(answer.at("choices").at(0).at("logprobs") ==
              answer.at("choices").at(1).at("logprobs"));
        const Json &logprobs = answer.at("choices").at(0).at("logprobs");
        REQUIRE(logprobs.at("token_logprobs").size() == ids.size() + 1);
        CHECK(logprobs.at("token_logprobs").at(0).is_null());
        for (size_t i = 1; i <= ids.size(); ++i) {
            const double value = logprobs.at("token_logprobs").at(i);
            CHECK(value <= 0);
            CHECK(value >= -9999);
            double most = -1e9;
            for (const auto &top : logprobs.at("top_logprobs").at(i).items())
                most = std::max(most, top.value().get<double>());
            CHECK(value <= most);
        }
    });
}

TEST_CASE("serve reads presets and keys, and a policy that does not exist is an error") {
    const TempFolder folder;
    folder.write("presets.yaml", "aliases:\n  small: {policy: sliding_window, budget: 16}\n");
    folder.write("keys", "open-sesame\n");
    const std::string key = "X-Api-Key: open-sesame\r\n";
    serve({tiny, "--name", "big", "--presets", (folder / "presets.yaml").string(), "--api-keys",
           (folder / "keys").string()},
          [&](uint16_t port) {
              wait_until_ready(port);
              CHECK(send(port, http_request("GET", "/v1/models")).status == 401);
              const RawResponse models = send(port, http_request("GET", "/v1/models", "", key));
              CHECK(contains(models.body, "\"id\":\"big\""));
              CHECK(contains(models.body, "\"id\":\"small\""));
              const RawResponse policies = send(port, http_request("GET", "/v1/policies", "", key));
              CHECK(contains(policies.body, "\"id\":\"sliding_window\""));
              const RawResponse wrong = send(
                  port, http_request("POST", "/v1/completions",
                                     R"({"prompt":"a","keel":{"policy":"no_such_policy"}})", key));
              CHECK(wrong.status == 400);
              CHECK(contains(wrong.body, "no_such_policy"));
              const RawResponse parameter = send(
                  port, http_request("POST", "/v1/completions",
                                     R"({"prompt":"a","keel":{"params":{"nothing":1}}})", key));
              CHECK(parameter.status == 400);
          });
}

TEST_CASE("serve refuses wrong options before it listens") {
    const TempFolder folder;
    folder.write("empty", "# no key\n");
    folder.write("presets.yaml", "aliases:\n  a: {polcy: h2o}\n");
    CHECK(contains(failure(run_keel({"serve"})), "expected TARGET"));
    failure(run_keel({"serve", "/no/such/model"}));
    failure(run_keel({"serve", tiny, "--api-keys", (folder / "empty").string()}));
    CHECK(contains(
        failure(run_keel({"serve", tiny, "--presets", (folder / "presets.yaml").string()})),
        "presets.yaml:2"));
    failure(run_keel({"serve", tiny, "--host", "256.1.1.1", "--port", "0"}));
    failure(run_keel({"serve", tiny, "--port", "70000"}));
    failure(run_keel({"serve", tiny, "--unix", folder.path().string()}));
    failure(run_keel({"serve", "--status", "http://127.0.0.1:1"}), 1);
    failure(run_keel({"serve", "--status", "nonsense"}));
}
