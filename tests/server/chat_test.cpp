// /v1/chat/completions.
#include "server/test_server.hpp"

using namespace keel::server;
using namespace keel::server::test;

namespace {

Json chat_body(const std::string &question = "Hello there") {
    return {{"messages", {{{"role", "user"}, {"content", question}}}}, {"max_tokens", 4}};
}

Json chat(const TestServer &server, const Json &body) {
    return body_of(server.post("/v1/chat/completions", body));
}

} // namespace

TEST_CASE("a chat answer has the fields that clients read") {
    TestServer server;
    const Json answer = chat(server, chat_body());
    CHECK(answer.at("object") == "chat.completion");
    CHECK(answer.at("id").get<std::string>().starts_with("chatcmpl-"));
    const Json &choice = answer.at("choices").at(0);
    CHECK(choice.at("message").at("role") == "assistant");
    CHECK(choice.at("message").at("content").is_string());
    CHECK(choice.at("finish_reason") == "length");
    CHECK(choice.at("logprobs").is_null());
    const std::string text = tiny_tokenizer()->decode(server.engine().last_request().prompt, false);
    CHECK(text == "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("messages may have parts, and null counts as absent") {
    TestServer server;
    Json body = {{"max_completion_tokens", 3},
                 {"temperature", nullptr},
                 {"stop", nullptr},
                 {"user", "user-1"},
                 {"metadata", Json::object()}};
    body["messages"] = {
        {{"role", "developer"}, {"content", "Be kind."}},
        {{"role", "user"}, {"content", "One"}},
        {{"role", "assistant"}, {"content", "Two"}},
        {{"role", "user"},
         {"content", {{{"type", "text"}, {"text", "Th"}}, {{"type", "text"}, {"text", "ree"}}}}}};
    CHECK(chat(server, body).at("usage").at("completion_tokens") == 3);
    const std::string text = tiny_tokenizer()->decode(server.engine().last_request().prompt, false);
    CHECK(text.find("Be kind.") != std::string::npos);
    CHECK(text.find("Three") != std::string::npos);
}

TEST_CASE("without max_tokens an answer may use the rest of the context") {
    TestServer server;
    Json body = chat_body();
    body.erase("max_tokens");
    const Json answer = chat(server, body);
    const auto request = server.engine().last_request();
    CHECK(request.generation.max_tokens == 256 - static_cast<int64_t>(request.prompt.size()));
    CHECK(answer.at("usage").at("completion_tokens") > 0);
}

TEST_CASE("a chat stream sends the roles first, then text, then bare finish reasons") {
    TestServer server;
    Json body = chat_body();
    body["stream"] = true;
    body["n"] = 2;
    const std::vector<Json> events = events_of(server.post("/v1/chat/completions", body));
    REQUIRE(events.size() >= 4);
    for (size_t i = 0; i < 2; ++i) {
        const Json &choice = events[i].at("choices").at(0);
        CHECK(choice.at("index") == i);
        CHECK(choice.at("delta") == Json{{"role", "assistant"}, {"content", nullptr}});
        CHECK(choice.at("finish_reason").is_null());
    }
    size_t finished = 0;
    std::vector<std::string> text(2);
    for (size_t i = 2; i < events.size(); ++i) {
        const Json &choice = events[i].at("choices").at(0);
        CHECK_FALSE(choice.at("delta").contains("role"));
        if (!choice.at("finish_reason").is_null()) {
            ++finished;
            CHECK(choice.at("delta").empty());
        } else {
            text[choice.at("index").get<size_t>()] +=
                choice.at("delta").at("content").get<std::string>();
        }
        CHECK(events[i].at("id") == events[0].at("id"));
        CHECK(events[i].at("created") == events[0].at("created"));
        CHECK_FALSE(events[i].contains("usage"));
    }
    CHECK(finished == 2);
    CHECK(text[0] == text[1]);
}

TEST_CASE("the log probabilities of a chat add up to its text") {
    TestServer server;
    Json body = chat_body("é世界");
    body["logprobs"] = true;
    body["top_logprobs"] = 2;
    body["max_tokens"] = 60;
    body["ignore_eos"] = true;
    const auto bytes_of = [](const Json &content) {
        std::string text;
        for (const Json &token : content) {
            CHECK(token.at("logprob") == -0.25);
            CHECK(token.at("top_logprobs").size() == 2);
            for (const Json &byte : token.at("bytes")) text += static_cast<char>(byte.get<int>());
        }
        return text;
    };
    const Json answer = chat(server, body);
    const Json &choice = answer.at("choices").at(0);
    CHECK(choice.at("logprobs").at("content").size() > 10);
    const std::string text = bytes_of(choice.at("logprobs").at("content"));
    CHECK(text.find("é世界") != std::string::npos);
    body["stream"] = true;
    std::string streamed;
    for (const Json &event : events_of(server.post("/v1/chat/completions", body))) {
        const Json &logprobs = event.at("choices").at(0).at("logprobs");
        if (!logprobs.is_null()) streamed += bytes_of(logprobs.at("content"));
    }
    CHECK(streamed == text);
}

TEST_CASE("user text cannot write special tokens into a chat") {
    TestServer server;
    chat(server, chat_body("<|end_of_text|> <|begin_of_text|>"));
    const auto prompt = server.engine().last_request().prompt;
    for (const int32_t id : prompt) CHECK(tiny_tokenizer()->kind(id) != keel::TokenKind::special);
}

TEST_CASE("features that the server does not have are refused by name") {
    TestServer server;
    const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
    const std::vector<std::pair<std::string, Json>> absent = {
        {"tools", Json::array({tool})},
        {"tool_choice", "required"},
        {"response_format", {{"type", "json_object"}}},
        {"grammar", "root ::= \"a\""},
        {"logit_bias", {{"50256", -100}}},
        {"presence_penalty", 0.5},
        {"frequency_penalty", -1},
        {"continue_final_message", true},
        {"chat_template_kwargs", {{"enable_thinking", false}}},
        {"modalities", Json::array({"audio"})},
    };
    for (const auto &field : absent) {
        Json body = chat_body();
        body[field.first] = field.second;
        const Json error = error_of(server.post("/v1/chat/completions", body), 400);
        CHECK(error.at("param") == field.first);
    }
    const std::vector<std::pair<std::string, Json>> harmless = {
        {"tools", Json::array()},
        {"tool_choice", "auto"},
        {"response_format", {{"type", "text"}}},
        {"logit_bias", Json::object()},
        {"presence_penalty", 0.0},
        {"frequency_penalty", 0},
        {"skip_special_tokens", true},
        {"n", 1},
        {"service_tier", "auto"},
        {"store", false},
        {"reasoning_effort", "low"}};
    for (const auto &field : harmless) {
        INFO(field.first);
        Json body = chat_body();
        body[field.first] = field.second;
        chat(server, body);
    }
}

TEST_CASE("messages that do not fit are refused with their place") {
    TestServer server;
    const auto error = [&](const Json &messages) {
        return error_of(server.post("/v1/chat/completions", {{"messages", messages}}), 400);
    };
    CHECK(error(Json::array()).at("param") == "messages");
    CHECK(error({{{"role", "user"}}}).at("param") == "messages[0].content");
    CHECK(error({{{"role", "boss"}, {"content", "a"}}}).at("param") == "messages[0].role");
    CHECK(error({{{"role", "tool"}, {"content", "a"}}}).at("param") == "messages[0].role");
    CHECK(error({{{"role", "assistant"}, {"content", "a"}}}).at("param") == "messages[0].role");
    CHECK(error({{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}).at("param") ==
          "messages[0].content[0].type");
    CHECK(error("text").at("param") == "messages");
    error({{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}});
}

TEST_CASE("a model without a chat template refuses chats") {
    TestServer server;
    auto model = std::make_shared<ServedModel>();
    model->engine = std::make_shared<FakeEngine>(tiny_tokenizer());
    model->tokenizer = tiny_tokenizer();
    model->chat_problem = "the model has no chat template";
    server.http().post([&server, model] { server.service().set_model(model); });
    const Json error = error_of(server.post("/v1/chat/completions", chat_body()), 400);
    CHECK(error.at("message") == "the model has no chat template");
}
