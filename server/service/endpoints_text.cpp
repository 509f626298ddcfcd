// /tokenize, /detokenize, /tokenizer_info and /apply-template
#include "server/service/service.hpp"

#include "server/service/chat_request.hpp"
#include "server/service/completion_request.hpp"
#include "server/service/token_text.hpp"

#include "base/json_writer.hpp"

namespace keel::server {
namespace {

// Throws if the model has no chat template.
const ChatRenderer &renderer(const ServedModel &model) {
    if (!model.chat) throw ApiError(400, model.chat_problem, "messages");
    return *model.chat;
}

// Reads the text, or the messages, of /tokenize. Other servers call the text `prompt` or `content`.
std::vector<int32_t> ids_of(const JsonNode &body, const ServedModel &model) {
    if (const auto messages = body.find("messages"))
        return renderer(model).render_chat(read_messages(*messages));
    const auto content = body.find("content");
    // llama-server adds no special tokens by default, vLLM does
    const bool otherwise = !content;
    const bool adds = body.has("add_special_tokens") ? body.flag_or("add_special_tokens", otherwise)
                                                     : body.flag_or("add_special", otherwise);
    return model.tokenizer->encode(
        content ? content->text() : required(body, "prompt").text(),
        EncodeOptions{.add_special = adds, .parse_special = body.flag_or("parse_special", true)});
}

HttpResponse tokenize_body(const std::string &text, const ServedModel &model) {
    const JsonDocument document = read_body(text);
    const JsonNode body = document.object();
    const std::vector<int32_t> ids = ids_of(body, model);
    JsonWriter out;
    out.begin_object().key("tokens").begin_array();
    if (body.flag_or("with_pieces", false)) {
        for (const int32_t id : ids)
            out.begin_object()
                .member("id", id)
                .member("piece", token_name(*model.tokenizer, id))
                .end_object();
    } else {
        for (const int32_t id : ids) out.value(id);
    }
    out.end_array().member("count", ids.size()).member("max_model_len", model.engine->context());
    out.end_object();
    return json_response(out.take());
}

HttpResponse detokenize_body(const std::string &text, const ServedModel &model) {
    const JsonDocument document = read_body(text);
    const std::vector<int32_t> ids =
        read_ids(required(document.object(), "tokens"), model.engine->vocab_size());
    const std::string decoded = model.tokenizer->decode(ids, DecodeOptions{.skip_special = false});
    JsonWriter out;
    out.begin_object().member("prompt", decoded).member("content", decoded).end_object();
    return json_response(out.take());
}

HttpResponse template_body(const std::string &text, const ServedModel &model) {
    const JsonDocument document = read_body(text);
    const auto messages = read_messages(required(document.object(), "messages"));
    JsonWriter out;
    out.begin_object().member("prompt", renderer(model).render_text(messages)).end_object();
    return json_response(out.take());
}

} // namespace

void Service::tokenize(const std::shared_ptr<Exchange> &exchange) {
    reply_later(exchange, [model = model(), body = exchange->request().body] {
        return tokenize_body(body, *model);
    });
}

void Service::detokenize(const std::shared_ptr<Exchange> &exchange) {
    reply_later(exchange, [model = model(), body = exchange->request().body] {
        return detokenize_body(body, *model);
    });
}

void Service::apply_template(const std::shared_ptr<Exchange> &exchange) {
    reply_later(exchange, [model = model(), body = exchange->request().body] {
        return template_body(body, *model);
    });
}

void Service::tokenizer_info(const std::shared_ptr<Exchange> &exchange) {
    const SharedModel now = model();
    const Tokenizer &tokenizer = *now->tokenizer;
    const auto piece = [&](const std::optional<int32_t> &id) {
        return id ? std::optional(token_name(tokenizer, *id)) : std::nullopt;
    };
    JsonWriter out;
    out.begin_object()
        .member("tokenizer_class", tokenizer.info().kind)
        .member("bos_token", piece(tokenizer.bos_id()))
        .member("eos_token", piece(tokenizer.eos_id()))
        .key("pad_token")
        .null()
        .member("add_bos_token", tokenizer.adds_bos())
        .member("vocab_size", now->engine->vocab_size())
        .member("model_max_length", now->engine->context())
        .key("chat_template");
    if (now->chat_template.empty()) {
        out.null();
    } else {
        out.value(now->chat_template);
    }
    out.end_object();
    exchange->answer(json_response(out.take()));
}

} // namespace keel::server
