// /v1/completions: the forms of prompts and answers.
#include "server/test_server.hpp"

using namespace keel::server;
using namespace keel::server::test;

namespace {

const std::string story = "Once upon a time";

std::vector<int32_t> ids_of(std::string_view text, bool special = true) {
    return tiny_tokenizer()->encode(text, special);
}

Json complete(const TestServer &server, const Json &body) {
    return body_of(server.post("/v1/completions", body));
}

} // namespace

TEST_CASE("a completion has the fields that clients read") {
    TestServer server;
    const Json answer = complete(server, {{"prompt", story}, {"max_tokens", 5}, {"model", "tiny"}});
    CHECK(answer.at("object") == "text_completion");
    CHECK(answer.at("model") == "tiny");
    CHECK(answer.at("id").get<std::string>().starts_with("cmpl-"));
    CHECK(answer.at("created") > 1'600'000'000);
    const Json &choice = answer.at("choices").at(0);
    CHECK(choice.at("finish_reason") == "length");
    CHECK(choice.at("index") == 0);
    CHECK(choice.at("logprobs").is_null());
    CHECK_FALSE(choice.at("text").get<std::string>().empty());
    const Json &usage = answer.at("usage");
    CHECK(usage.at("prompt_tokens") == ids_of(story).size());
    CHECK(usage.at("completion_tokens") == 5);
    CHECK(usage.at("total_tokens") == ids_of(story).size() + 5);
    CHECK(usage.at("prompt_tokens_details").at("cached_tokens") == 0);
    CHECK(usage.at("keel").at("policy") == "none");
    CHECK(usage.at("keel").at("seed").is_number_unsigned());
    CHECK(server.engine().last_request().prompt == ids_of(story));
}

TEST_CASE("a prompt may be a text, texts, ids or lists of ids") {
    TestServer server;
    const auto run = [&](const Json &prompt) {
        return complete(server, {{"prompt", prompt}, {"max_tokens", 2}}).at("choices").size();
    };
    CHECK(run(story) == 1);
    CHECK(run(Json::array({story, "Two"})) == 2);
    CHECK(run(Json::array({5, 6, 7})) == 1);
    CHECK(server.engine().last_request().prompt == std::vector<int32_t>{5, 6, 7});
    CHECK(run(Json::array({Json::array({5, 6}), Json::array({7})})) == 2);
    CHECK(run(Json::array({story, Json::array({7})})) == 2);
}

TEST_CASE("the choices of several prompts are counted through all prompts") {
    TestServer server;
    const Json answer = complete(
        server, {{"prompt", Json::array({"One", "Two", "Three"})}, {"n", 2}, {"max_tokens", 3}});
    const Json &choices = answer.at("choices");
    REQUIRE(choices.size() == 6);
    for (size_t i = 0; i < 6; ++i) CHECK(choices.at(i).at("index") == i);
    CHECK(choices.at(2).at("text") == choices.at(3).at("text"));
    CHECK(choices.at(1).at("text") != choices.at(2).at("text"));
}

TEST_CASE("echo with log probabilities has one entry for each token of the prompt and the text") {
    TestServer server;
    const std::vector<int32_t> ids = ids_of(story, false);
    const Json answer = complete(server, {{"prompt", Json::array({ids})},
                                          {"temperature", 0},
                                          {"max_tokens", 1},
                                          {"logprobs", 1},
                                          {"seed", 1234},
                                          {"echo", true}});
    const Json &choice = answer.at("choices").at(0), &logprobs = choice.at("logprobs");
    const size_t entries = ids.size() + 1;
    for (const char *list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        CHECK(logprobs.at(list).size() == entries);
    CHECK(logprobs.at("token_logprobs").at(0).is_null());
    CHECK(logprobs.at("top_logprobs").at(0).is_null());
    for (size_t i = 1; i < entries; ++i) {
        const Json &value = logprobs.at("token_logprobs").at(i);
        CHECK(value == -0.25);
        double most = -1e9;
        for (const auto &top : logprobs.at("top_logprobs").at(i).items())
            most = std::max(most, top.value().get<double>());
        CHECK(value.get<double>() == most); // so lm_eval counts the token as the greedy one
    }
    const std::string text = choice.at("text");
    CHECK(text.starts_with(story));
    CHECK(logprobs.at("text_offset").back() == story.size());
    CHECK(server.engine().last_request().generation.seed == 1234);
    CHECK(answer.at("usage").at("keel").at("seed") == 1234);
}

TEST_CASE("the entries of the prompt are complete if an end token or a stop string ends the text") {
    TestServer server;
    const std::vector<int32_t> ids = ids_of(story, false);
    const std::string first = std::string(tiny_tokenizer()->piece(ids[0]));
    for (const Json &stop :
         {Json{{"stop", Json::array({first})}}, Json{{"stop_token_ids", Json::array({ids[0]})}}}) {
        Json body = {{"prompt", ids}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}};
        body.update(stop);
        const Json answer = complete(server, body);
        const Json &choice = answer.at("choices").at(0);
        CHECK(choice.at("logprobs").at("tokens").size() == ids.size() + 1);
        CHECK(choice.at("text") == story);
        CHECK(choice.at("finish_reason") == "stop");
    }
}

TEST_CASE("max_tokens 0 with echo scores the prompt and generates nothing") {
    TestServer server;
    const Json answer =
        complete(server, {{"prompt", story}, {"max_tokens", 0}, {"logprobs", 2}, {"echo", true}});
    const Json &choice = answer.at("choices").at(0);
    CHECK(choice.at("text") == story);
    CHECK(choice.at("logprobs").at("tokens").size() == ids_of(story).size());
    CHECK(answer.at("usage").at("completion_tokens") == 0);
}

TEST_CASE("a prompt of one token can be echoed with log probabilities") {
    TestServer server;
    const Json answer =
        complete(server, {{"prompt", {9}}, {"max_tokens", 2}, {"logprobs", 1}, {"echo", true}});
    const Json &logprobs = answer.at("choices").at(0).at("logprobs");
    CHECK(logprobs.at("tokens").size() == 3);
    CHECK(logprobs.at("token_logprobs").at(0).is_null());
    CHECK(logprobs.at("token_logprobs").at(1) == -0.25);
}

TEST_CASE("a text prompt gets the begin token unless the client says otherwise") {
    TestServer server;
    complete(server, {{"prompt", story}, {"max_tokens", 1}});
    CHECK(server.engine().last_request().prompt == ids_of(story, true));
    complete(server, {{"prompt", story}, {"max_tokens", 1}, {"add_special_tokens", false}});
    CHECK(server.engine().last_request().prompt == ids_of(story, false));
}

TEST_CASE("offsets count code points") {
    TestServer server;
    const std::string text = "é世界 a😀b";
    const Json answer = complete(server, {{"prompt", text},
                                          {"add_special_tokens", false},
                                          {"max_tokens", 1},
                                          {"logprobs", 0},
                                          {"echo", true}});
    const Json &logprobs = answer.at("choices").at(0).at("logprobs");
    CHECK(logprobs.at("text_offset").back() == 7);
    const auto offsets = logprobs.at("text_offset").get<std::vector<int>>();
    CHECK(std::is_sorted(offsets.begin(), offsets.end()));
    CHECK(offsets.front() == 0);
    for (const Json &token : logprobs.at("tokens")) CHECK(token.is_string());
}

TEST_CASE("a stream has the parts of the text, one finish reason and the usage at the end") {
    TestServer server;
    const Json body = {{"prompt", story}, {"max_tokens", 6},
                       {"stream", true},  {"stream_options", {{"include_usage", true}}},
                       {"logprobs", 1},   {"echo", true}};
    const std::vector<Json> events = events_of(server.post("/v1/completions", body));
    std::string text;
    size_t finished = 0, entries = 0;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        const Json &event = events[i];
        CHECK(event.at("id") == events[0].at("id"));
        CHECK(event.at("object") == "text_completion");
        CHECK_FALSE(event.contains("usage"));
        const Json &choice = event.at("choices").at(0);
        text += choice.at("text").get<std::string>();
        entries += choice.at("logprobs").at("tokens").size();
        if (!choice.at("finish_reason").is_null()) ++finished;
    }
    CHECK(finished == 1);
    CHECK(entries == ids_of(story).size() + 6);
    CHECK(events.back().at("choices").empty());
    CHECK(events.back().at("usage").at("completion_tokens") == 6);
    const Json whole = complete(server, {{"prompt", story}, {"max_tokens", 6}, {"echo", true}});
    CHECK(text == whole.at("choices").at(0).at("text"));
}

TEST_CASE("a stop string ends the text and is not part of it") {
    TestServer server;
    const Json answer = complete(server, {{"prompt", story}, {"max_tokens", 50}, {"stop", "upon"}});
    const Json &choice = answer.at("choices").at(0);
    CHECK(choice.at("finish_reason") == "stop");
    CHECK(choice.at("stop_reason") == "upon");
    CHECK(choice.at("text").get<std::string>().find("upon") == std::string::npos);
}

TEST_CASE("the text of the end token as a stop string ends the text") {
    TestServer server;
    complete(
        server,
        {{"prompt", story}, {"max_tokens", 2}, {"stop", Json::array({"<|end_of_text|>", "\n\n"})}});
    const auto end_ids = server.engine().last_request().end_ids;
    CHECK(end_ids == std::vector<int32_t>{*tiny_tokenizer()->find_token("<|end_of_text|>")});
}

TEST_CASE("a request chooses its policy by a field, by a header or by an alias") {
    TestSetup setup;
    setup.options.aliases = parse_aliases(
        "aliases:\n  tiny@snapkv-64: {policy: snapkv, budget: 64, params: {window: 16}}\n", "a");
    TestServer server(std::move(setup));
    const keel::api::PolicyChoice wanted{
        {"name", "snapkv"}, {"params.window", "16"}, {"budget.tokens", "64"}};
    const Json keel = {{"policy", "snapkv"}, {"budget", 64}, {"params", {{"window", 16}}}};
    Json body = {{"prompt", story}, {"max_tokens", 1}};

    body["keel"] = keel;
    CHECK(complete(server, body).at("usage").at("keel").at("policy") == "snapkv");
    CHECK(server.engine().last_request().policy == wanted);
    const std::string header = "X-Keel-Policy: " + keel.dump() + "\r\n";
    error_of(server.post("/v1/completions", body, header), 400);

    body.erase("keel");
    body_of(server.post("/v1/completions", body, header));
    CHECK(server.engine().last_request().policy == wanted);

    body["model"] = "tiny@snapkv-64";
    CHECK(complete(server, body).at("model") == "tiny@snapkv-64");
    CHECK(server.engine().last_request().policy == wanted);
    CHECK(error_of(server.post("/v1/completions", body, header), 400).at("param") == "keel");

    body["model"] = "tiny@snapkv-65";
    const Json error = error_of(server.post("/v1/completions", body), 404);
    CHECK(error.at("code") == "model_not_found");
    CHECK(error.at("message").get<std::string>().find("tiny@snapkv-64") != std::string::npos);
    body.erase("model");
    complete(server, body);
    CHECK_FALSE(server.engine().last_request().policy.has_value());
}

TEST_CASE("protected ranges reach the engine") {
    TestServer server;
    complete(server, {{"prompt", story},
                      {"max_tokens", 1},
                      {"keel", {{"protect", {{"prefix", 2}, {"spans", {{1, 3}}}}}}}});
    const auto request = server.engine().last_request();
    CHECK(request.protect == std::vector<std::pair<int64_t, int64_t>>{{1, 3}});
    CHECK(request.policy == keel::api::PolicyChoice{{"protect.prefix", "2"}});
}

TEST_CASE("a full queue gives 429, and an error after the start of a stream is an event") {
    TestServer server;
    server.engine().refuse(true);
    const RawResponse full = server.post("/v1/completions", {{"prompt", story}});
    CHECK(error_of(full, 429).at("type") == "rate_limit_error");
    CHECK(full.headers.at("retry-after") == "1");
    server.engine().refuse(false);

    server.engine().fail_next("the logits are not finite");
    CHECK(error_of(server.post("/v1/completions", {{"prompt", story}}), 500).at("message") ==
          "the logits are not finite");
    server.engine().fail_next("the logits are not finite");
    const RawResponse cut = server.post("/v1/completions", {{"prompt", story}, {"stream", true}});
    CHECK(cut.status == 200);
    CHECK_FALSE(cut.is_whole); // the client can see that the answer is cut
    CHECK(cut.body.find("[DONE]") == std::string::npos);
    CHECK(cut.body.find("\"error\":{\"message\":\"the logits are not finite\"") !=
          std::string::npos);
    CHECK(server.engine().wait_for(0));
}

TEST_CASE("prompts that cannot fit and too many sequences are refused") {
    TestServer server;
    const std::vector<int32_t> ids(257, 5);
    const Json error = error_of(server.post("/v1/completions", {{"prompt", ids}}), 400);
    CHECK(error.at("code") == "context_length_exceeded");
    CHECK(error.at("param") == "prompt");
    error_of(server.post("/v1/completions", {{"prompt", "a"}, {"n", 17}}), 400);
    error_of(server.post("/v1/completions", {{"prompt", ""}, {"add_special_tokens", false}}), 400);
}
