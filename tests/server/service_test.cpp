// Endpoints that do not generate text, metrics, and the log.
#include "server/test_server.hpp"

using namespace keel::server;
using namespace keel::server::test;

TEST_CASE("the list of models has the model and its aliases") {
    TestSetup setup;
    setup.options.aliases = parse_aliases("aliases: {tiny@h2o: {policy: h2o}}", "a");
    TestServer server(std::move(setup));
    const Json answer = body_of(server.get("/v1/models"));
    CHECK(answer.at("object") == "list");
    REQUIRE(answer.at("data").size() == 2);
    CHECK(answer.at("data").at(0).at("id") == "tiny");
    CHECK(answer.at("data").at(0).at("object") == "model");
    CHECK(answer.at("data").at(0).at("max_model_len") == 256);
    CHECK(answer.at("data").at(1).at("id") == "tiny@h2o");
    CHECK(answer.at("data").at(1).at("root") == "tiny");
}

TEST_CASE("text becomes tokens and text again, with the names of vLLM and llama-server") {
    TestServer server;
    const std::string text = "Once upon a time, é世";
    const Json vllm = body_of(server.post("/tokenize", {{"prompt", text}}));
    CHECK(vllm.at("tokens").get<std::vector<int32_t>>() == tiny_tokenizer()->encode(text));
    CHECK(vllm.at("count") == vllm.at("tokens").size());
    CHECK(vllm.at("max_model_len") == 256);
    const Json plain =
        body_of(server.post("/tokenize", {{"prompt", text}, {"add_special_tokens", false}}));
    const Json llama = body_of(server.post("/tokenize", {{"content", text}}));
    CHECK(llama.at("tokens") == plain.at("tokens"));
    const Json pieces =
        body_of(server.post("/tokenize", {{"content", "Once"}, {"with_pieces", true}}));
    CHECK(pieces.at("tokens").at(0).at("id").is_number());
    CHECK(pieces.at("tokens").at(0).at("piece").is_string());
    const Json back = body_of(server.post("/detokenize", {{"tokens", llama.at("tokens")}}));
    CHECK(back.at("prompt") == text);
    CHECK(back.at("content") == text);
    CHECK(error_of(server.post("/detokenize", {{"tokens", {-1}}}), 400).at("param") == "tokens[0]");
    CHECK(error_of(server.post("/tokenize", {{"text", "a"}}), 400).at("param") == "prompt");
}

TEST_CASE("the tokenizer's special tokens and the chat template can be read") {
    TestServer server;
    const Json info = body_of(server.get("/tokenizer_info"));
    CHECK(info.at("eos_token") == "<|end_of_text|>");
    CHECK(info.at("bos_token") == "<|begin_of_text|>");
    CHECK(info.at("pad_token").is_null());
    const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
    CHECK(body_of(server.post("/apply-template", {{"messages", messages}})).at("prompt") ==
          "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    CHECK(body_of(server.post("/tokenize", {{"messages", messages}})).at("count") > 5);
}

TEST_CASE("the policies that requests can choose are listed") {
    TestServer server;
    const Json answer = body_of(server.get("/v1/policies"));
    CHECK(answer.at("data").at(0).at("id") == "snapkv");
    CHECK(answer.at("data").at(0).at("params").at(0).at("name") == "params.window");
}

TEST_CASE("the metrics count requests, tokens and times") {
    TestSetup setup;
    setup.options.has_vllm_metrics = true;
    TestServer server(std::move(setup));
    body_of(server.post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 5}}));
    server.get("/no/such/path");
    const RawResponse response = server.get("/metrics");
    CHECK(response.status == 200);
    CHECK(response.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
    for (const char *line :
         {"keel_requests_total{model_name=\"tiny\"} 1\n",
          "keel_request_success_total{model_name=\"tiny\",finished_reason=\"length\","
          "policy=\"none\"} 1\n",
          "keel_time_to_first_token_seconds_count{model_name=\"tiny\"} 1\n",
          "keel_e2e_request_latency_seconds_count{model_name=\"tiny\"} 1\n",
          "keel_http_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 1\n",
          "keel_http_requests_total{endpoint=\"other\",status=\"404\"} 1\n",
          "vllm:num_requests_running{model_name=\"tiny\"} 0\n",
          "# TYPE keel_num_requests_waiting gauge\n"}) {
        INFO(line);
        CHECK(response.body.find(line) != std::string::npos);
    }
}

TEST_CASE("the log has a line for each request, without its prompt and its key") {
    TestSetup setup;
    setup.options.keys = ApiKeys::parse("secret-key", "keys");
    TestServer server(std::move(setup));
    const std::string key = "Authorization: Bearer secret-key\r\n";
    const Json body = {{"prompt", "secret-prompt"}, {"max_tokens", 3}};
    body_of(server.post("/v1/completions?key=secret-key", body, key));
    error_of(server.post("/v1/completions", {{"prompt", {{"secret-prompt", 1}}}}, key), 400);
    server.get("/v1/models");
    for (int i = 0; i < 200 && server.log().size() < 3; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<std::string> lines = server.log();
    REQUIRE(lines.size() == 3);
    for (const std::string &line : lines) CHECK(line.find("secret") == std::string::npos);
    const Json first = Json::parse(lines[0]);
    CHECK(first.at("path") == "/v1/completions");
    CHECK(first.at("status") == 200);
    CHECK(first.at("completion_tokens") == 3);
    CHECK(first.at("client_gone") == false);
    CHECK(first.at("seconds").is_number());
    CHECK(Json::parse(lines[1]).at("param") == "prompt");
    CHECK(Json::parse(lines[2]).at("status") == 401);
}
