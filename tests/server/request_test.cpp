// Bodies that are wrong: each is refused with the key at fault, and the server goes on.
#include "server/test_server.hpp"

using namespace keel::server;
using namespace keel::server::test;

namespace {

Json refused(const TestServer &server, const std::string &body, int status = 400) {
    return error_of(server.send(http_request("POST", "/v1/completions", body)), status);
}

// `field` is JSON text: "\"n\":0".
std::string param_of(const TestServer &server, const std::string &field) {
    INFO(field);
    const Json param = refused(server, R"({"prompt":"a",)" + field + "}").at("param");
    return param.is_null() ? std::string() : param.get<std::string>();
}

} // namespace

TEST_CASE("bodies that are not JSON objects are refused") {
    TestServer server;
    for (const std::string &body :
         {std::string(""), std::string("{"), std::string("[]"), std::string("null"),
          std::string("\"a\""), std::string("{\"prompt\":\"\xff\xfe\"}"),
          std::string(R"({"prompt":"\ud800"})"), std::string(R"({"prompt":"\udc00\ud800"})"),
          std::string(R"({"prompt":"a","prompt":"b"})"), std::string("{\"prompt\":\"a\"} x"),
          std::string("{\"prompt\":\"a\x01\"}"), std::string("{\"prompt\":1e999}"),
          std::string("{}"), std::string(1000, '['), std::string("{\"prompt\":\"a\",}")}) {
        INFO(body.substr(0, 60));
        refused(server, body);
    }
    std::string deep = R"({"prompt":)";
    for (int i = 0; i < 100'000; ++i) deep += "[";
    refused(server, deep);
    std::string wide = R"({"prompt":[)";
    for (int i = 0; i < 600'000; ++i) wide += "1,";
    refused(server, wide + "1]}");
    CHECK(server.get("/health").status == 200);
}

TEST_CASE("values out of range are refused with their key") {
    TestServer server;
    CHECK(param_of(server, R"("n":1000000)") == "n");
    CHECK(param_of(server, R"("n":0)") == "n");
    CHECK(param_of(server, R"("n":"two")") == "n");
    CHECK(param_of(server, R"("max_tokens":-1)") == "max_tokens");
    CHECK(param_of(server, R"("max_tokens":1e30)") == "max_tokens");
    CHECK(param_of(server, R"("temperature":-0.5)") == "temperature");
    CHECK(param_of(server, R"("temperature":"hot")") == "temperature");
    CHECK(param_of(server, R"("top_p":1.5)") == "top_p");
    CHECK(param_of(server, R"("top_k":-2)") == "top_k");
    CHECK(param_of(server, R"("seed":-5)") == "seed");
    CHECK(param_of(server, R"("seed":1.5)") == "seed");
    CHECK(param_of(server, R"("logprobs":1000)") == "logprobs");
    CHECK(param_of(server, R"("logprobs":true)") == "logprobs");
    CHECK(param_of(server, R"("echo":"yes")") == "echo");
    CHECK(param_of(server, R"("stream":1)") == "stream");
    CHECK(param_of(server, R"("stream_options":{"include_usage":true})") == "stream_options");
    CHECK(param_of(server, R"("stop":[""])") == "stop[0]");
    CHECK(param_of(server, R"("stop":"")") == "stop");
    CHECK(param_of(server, R"("stop":5)") == "stop");
    CHECK(param_of(server, R"("stop_token_ids":[99999999])") == "stop_token_ids");
    CHECK(param_of(server, R"("model":5)") == "model");
    CHECK(param_of(server, R"("suffix":"b")") == "suffix");
    CHECK(param_of(server, R"("best_of":4)") == "best_of");
    CHECK(param_of(server, R"("messages":[])") == "messages");
}

TEST_CASE("prompts of the wrong type and ids out of range are refused") {
    TestServer server;
    const auto param = [&](const std::string &prompt) {
        const Json value = refused(server, "{\"prompt\":" + prompt + "}").at("param");
        return value.is_null() ? std::string() : value.get<std::string>();
    };
    CHECK(param("5") == "prompt");
    CHECK(param("{}") == "prompt");
    CHECK(param("[]") == "prompt");
    CHECK(param("[[]]") == "prompt[0]");
    CHECK(param("[5,-1]") == "prompt[1]");
    CHECK(param("[5,99999999]") == "prompt[1]");
    CHECK(param("[5,1.5]") == "prompt[1]");
    CHECK(param("[5,\"a\"]") == "prompt[1]");
    CHECK(param("[[1],[2,[3]]]") == "prompt[1][1]");
    CHECK(param("[null]") == "prompt[0]");
}

TEST_CASE("a stop list of megabytes is refused") {
    TestServer server;
    CHECK(param_of(server, "\"stop\":\"" + std::string(3 << 20, 's') + "\"") == "stop");
    std::string list = "\"stop\":[\"x\"";
    for (int i = 0; i < 100'000; ++i) list += ",\"stop" + std::to_string(i) + "\"";
    CHECK(param_of(server, list + "]") == "stop");
}

TEST_CASE("a policy that is wrong is refused, and a request cannot load a library") {
    TestServer server;
    const auto param = [&](const std::string &keel) {
        return param_of(server, "\"keel\":" + keel);
    };
    CHECK(param(R"({"policy":"nothing_like_this"})") == "keel.policy");
    CHECK(param(R"({"policy":"/tmp/evil.so"})") == "keel.policy");
    CHECK(param(R"({"policy":"../x"})") == "keel.policy");
    CHECK(param(R"({"policy":"a\u0000b"})") == "keel.policy");
    CHECK(param(R"({"allocator":"/tmp/evil.so"})") == "keel.allocator");
    CHECK(param(R"({"allocator":{"name":"./e.so"}})") == "keel.allocator.name");
    CHECK(param(R"({"pollicy":"snapkv"})") == "keel.pollicy");
    CHECK(param(R"({"log":"/tmp/log"})") == "keel.log");
    CHECK(param(R"({"kv":{"dtype":"q8_0"}})") == "keel.kv");
    CHECK(param(R"({"budget":0})") == "keel.budget");
    CHECK(param(R"({"budget":{"tokens":5,"ratio":0.5}})") == "keel.budget");
    CHECK(param(R"({"budget":{"bytes":5}})") == "keel.budget.bytes");
    CHECK(param(R"({"params":{"window":"/etc/passwd"}})") == "keel.params.window");
    CHECK(param(R"({"params":{"window":[1]}})") == "keel.params.window");
    CHECK(param(R"({"params":{"window":"a: b"}})") == "keel.params.window");
    CHECK(param(R"({"protect":{"spans":[[5,1]]}})") == "keel.protect.spans[0]");
    CHECK(param(R"({"protect":[[0,1,2]]})") == "keel.protect[0]");
    CHECK(param(R"("snapkv")") == "keel");
    for (const char *header : {"{", "[]", R"({"policy":5})", R"({"polcy":"snapkv"})"})
        CHECK(error_of(server.post("/v1/completions", {{"prompt", "a"}},
                                   std::string("X-Keel-Policy: ") + header + "\r\n"),
                       400)
                  .at("param") == "X-Keel-Policy");
}
