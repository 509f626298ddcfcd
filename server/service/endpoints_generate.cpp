// /v1/completions and /v1/chat/completions
#include "server/service/service.hpp"

#include "server/service/chat_request.hpp"
#include "server/service/chat_writer.hpp"
#include "server/service/completion_request.hpp"
#include "server/service/completion_writer.hpp"

#include "base/display.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <random>

namespace keel::server {
namespace {

// Seeds are shown in JSON, so they are at most 2^53, which every client can read.
uint64_t random_seed() {
    static thread_local std::mt19937_64 generator{std::random_device{}()};
    return generator() >> 11;
}

void check_sequences(const char *key, size_t prompts, int64_t choices, const Engine &engine) {
    const int64_t wanted = static_cast<int64_t>(prompts) * choices;
    if (wanted > engine.most_sequences())
        throw ApiError(
            400,
            fmt::format("{}: expected at most {} sequences in one request (prompts times "
                        "n), found {}; divide the request, or start the server with a "
                        "larger --queue",
                        key, engine.most_sequences(), wanted),
            key);
}

// The engine checks whether the prompt fits, because this depends on the policy.
void check_not_empty(const char *key, size_t tokens) {
    if (tokens == 0)
        throw ApiError(400, fmt::format("{}: expected at least one token, found none", key), key);
}

// The scheduler's own error would show the server's folders.
void check_policy_name(const KeelFields &keel, const Engine &engine) {
    for (const auto &key : keel.policy) {
        if (key.first != "name") continue;
        std::vector<std::string> names;
        for (api::PolicyInfo &policy : engine.policies()) names.push_back(std::move(policy.name));
        if (std::find(names.begin(), names.end(), key.second) != names.end()) continue;
        throw ApiError(400,
                       fmt::format("keel.policy: there is no policy {}{}; /v1/policies lists all",
                                   quote_text(key.second), did_you_mean(key.second, names)),
                       "keel.policy");
    }
}

} // namespace

struct Service::Body {
    std::string text;
    std::optional<std::string> policy_header;
    std::string id; // of the request
    SharedModel model;
    Aliases aliases;
};

std::shared_ptr<Service::Body> Service::take_body(const Exchange &exchange) const {
    auto body = std::make_shared<Body>();
    body->model = model();
    body->text = exchange.request().body;
    body->id = exchange.id();
    body->aliases = options_.aliases;
    if (const auto header = exchange.request().header("X-Keel-Policy"))
        body->policy_header = std::string(*header);
    return body;
}

void Service::complete(const std::shared_ptr<Exchange> &exchange) {
    const auto body = take_body(*exchange);
    jobs_->start(exchange, body->model->engine, [this, body] { return prepare_completion(*body); });
}

void Service::chat(const std::shared_ptr<Exchange> &exchange) {
    const auto body = take_body(*exchange);
    jobs_->start(exchange, body->model->engine, [this, body] { return prepare_chat(*body); });
}

Service::Named Service::named_model(const CommonFields &fields, const Aliases &aliases,
                                    const std::optional<std::string> &header) const {
    Named named{fields.model.empty() ? options_.model_name : fields.model, fields.keel};
    if (header) {
        if (fields.keel)
            throw ApiError(400, "keel: the header X-Keel-Policy sets the policy too; use only one",
                           "keel");
        named.keel = read_keel_header(*header);
    }
    if (named.name == options_.model_name) return named;
    const auto alias = aliases.find(named.name);
    if (alias == aliases.end()) {
        std::vector<std::string> names{options_.model_name};
        for (const auto &entry : aliases) names.push_back(entry.first);
        throw ApiError(404,
                       fmt::format("model: the server has no model {}{}; /v1/models lists all",
                                   quote_text(named.name), did_you_mean(named.name, names)),
                       "model", "model_not_found");
    }
    if (named.keel)
        throw ApiError(400,
                       fmt::format("keel: the model {} has its own policy; use the model {} to "
                                   "choose another policy",
                                   quote_text(named.name), quote_text(options_.model_name)),
                       "keel");
    named.keel = alias->second;
    return named;
}

api::Request Service::make_request(const CommonFields &fields, const Named &named,
                                   const ServedModel &model, std::vector<int32_t> prompt) const {
    api::Request request;
    request.prompt = std::move(prompt);
    request.generation = fields.generation;
    request.choices = fields.choices;
    request.end_ids = fields.end_ids;
    for (const int32_t id : fields.end_ids)
        if (id >= model.engine->vocab_size())
            throw ApiError(400,
                           fmt::format("stop_token_ids: expected ids from 0 to {}, found {}",
                                       model.engine->vocab_size() - 1, id),
                           "stop_token_ids");
    // The text of a special token is not part of the answer's text, so its id ends the answer.
    for (const std::string &stop : fields.generation.stop)
        if (const auto id = model.tokenizer->find_token(stop)) request.end_ids.push_back(*id);
    std::sort(request.end_ids.begin(), request.end_ids.end());
    request.end_ids.erase(std::unique(request.end_ids.begin(), request.end_ids.end()),
                          request.end_ids.end());
    if (named.keel) {
        check_policy_name(*named.keel, *model.engine);
        if (!named.keel->policy.empty()) request.policy = named.keel->policy;
        request.protect = named.keel->protect;
    }
    return request;
}

PreparedJob Service::prepare_completion(const Body &body) const {
    const ServedModel &model = *body.model;
    const JsonDocument document = read_body(body.text);
    CompletionRequest request = read_completion_request(document.object(), model.engine->defaults(),
                                                        model.engine->vocab_size());
    const Named named = named_model(request, body.aliases, body.policy_header);
    check_sequences("prompt", request.prompts.size(), request.choices, *model.engine);
    if (!request.has_seed) request.generation.seed = random_seed();
    request.generation.max_tokens =
        request.max_tokens.value_or(CompletionRequest::default_max_tokens);
    request.generation.logprobs = request.logprobs;

    CompletionWriter::Setup setup;
    setup.head = {"cmpl-" + body.id, std::time(nullptr), named.name, "keel-" + options_.version};
    setup.stream = request.stream;
    setup.echo = request.echo;
    setup.logprobs = request.logprobs;
    setup.choices = request.choices;
    PreparedJob job;
    for (Prompt &prompt : request.prompts) {
        if (!prompt.is_ids)
            prompt.ids = model.tokenizer->encode(
                prompt.text, EncodeOptions{.add_special = request.add_special_tokens});
        check_not_empty("prompt", prompt.ids.size());
        api::Request one = make_request(request, named, model, prompt.ids);
        if (request.echo) one.prompt_logprobs = request.logprobs;
        if (prompt.is_ids && request.echo) prompt.text = model.tokenizer->decode(prompt.ids);
        setup.texts.push_back(request.echo ? std::move(prompt.text) : std::string());
        setup.prompts.push_back(request.echo && request.logprobs ? std::move(prompt.ids)
                                                                 : std::vector<int32_t>());
        job.requests.push_back(std::move(one));
    }
    job.usage.seed = request.generation.seed;
    job.stream = request.stream;
    job.include_usage = request.include_usage;
    job.model = named.name;
    job.writer = std::make_unique<CompletionWriter>(std::move(setup), *model.tokenizer);
    return job;
}

PreparedJob Service::prepare_chat(const Body &body) const {
    const ServedModel &model = *body.model;
    if (!model.chat) throw ApiError(400, model.chat_problem, "messages");
    const JsonDocument document = read_body(body.text);
    ChatRequest request = read_chat_request(document.object(), model.engine->defaults());
    const Named named = named_model(request, body.aliases, body.policy_header);
    check_sequences("n", 1, request.choices, *model.engine);
    std::vector<int32_t> prompt = model.chat->render_chat(request.messages);
    check_not_empty("messages", prompt.size());
    if (!request.has_seed) request.generation.seed = random_seed();
    const int64_t room = model.engine->context() - static_cast<int64_t>(prompt.size());
    const int64_t open_end = room > 0 ? room : request.generation.max_tokens;
    request.generation.max_tokens = request.max_tokens.value_or(open_end);
    request.generation.logprobs = request.logprobs;

    ChatWriter::Setup setup;
    setup.head = {"chatcmpl-" + body.id, std::time(nullptr), named.name,
                  "keel-" + options_.version};
    setup.stream = request.stream;
    setup.logprobs = request.logprobs;
    setup.choices = request.choices;
    setup.lead = model.chat->answer_lead();
    for (std::string &stop : model.chat->stop_strings())
        request.generation.stop.push_back(std::move(stop));
    if (!request.generation.ignore_end)
        for (const int32_t id : model.chat->end_ids()) request.end_ids.push_back(id);
    PreparedJob job;
    job.requests.push_back(make_request(request, named, model, std::move(prompt)));
    setup.end_ids = job.requests.front().end_ids;
    job.usage.seed = request.generation.seed;
    job.stream = request.stream;
    job.include_usage = request.include_usage;
    job.model = named.name;
    job.prompt_key = "messages";
    job.writer = std::make_unique<ChatWriter>(std::move(setup), *model.tokenizer);
    return job;
}

} // namespace keel::server
