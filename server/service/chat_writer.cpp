#include "server/service/chat_writer.hpp"

#include <algorithm>

namespace keel::server {

ChatWriter::ChatWriter(Setup setup, const Tokenizer &tokenizer)
    : setup_(std::move(setup)), tokenizer_(tokenizer),
      choices_(static_cast<size_t>(setup_.choices)) {}

// Clients that add the parts of a stream need the chunks with the roles first, in order.
void ChatWriter::begin(Chunks &out) {
    if (!setup_.stream) return;
    for (size_t i = 0; i < choices_.size(); ++i)
        out.push_back(chunk(i, R"({"role":"assistant","content":null})", nullptr, nullptr));
}

// Removes the lead from the start of the text. Text that may be the start of the lead waits.
void ChatWriter::strip_lead(Choice &choice, bool is_last) const {
    if (!choice.is_at_start) return;
    if (choice.text.starts_with(setup_.lead)) {
        choice.text.erase(0, setup_.lead.size());
        choice.is_at_start = false;
    } else if (is_last || !std::string_view(setup_.lead).starts_with(choice.text)) {
        choice.is_at_start = false;
    }
}

std::string ChatWriter::token_object(const api::Logprobs &token) const {
    JsonWriter out;
    const auto write = [&](int32_t id, double value) {
        out.member("token", token_name(tokenizer_, id)).member("logprob", value);
        out.key("bytes").begin_array();
        for (const char c : tokenizer_.piece(id)) out.value(int{static_cast<unsigned char>(c)});
        out.end_array();
    };
    out.begin_object();
    write(token.chosen.id, chosen_logprob(token));
    out.key("top_logprobs").begin_array();
    for (const api::TokenLogprob &other : token.top) {
        out.begin_object();
        write(other.id, shown_logprob(other.logprob));
        out.end_object();
    }
    out.end_array().end_object();
    return out.take();
}

void ChatWriter::take_event(size_t, const api::RequestEvent &event, Chunks &out) {
    const auto index = static_cast<size_t>(event.choice);
    Choice &choice = choices_.at(index);
    const bool is_end = event.kind == api::RequestEvent::Kind::end;
    choice.text += event.text;
    strip_lead(choice, is_end);
    for (const api::Logprobs &token : event.logprobs) {
        const bool is_mark = std::find(setup_.end_ids.begin(), setup_.end_ids.end(),
                                       token.chosen.id) != setup_.end_ids.end();
        if (!is_mark) choice.logprobs.push_back(token_object(token));
    }
    if (is_end) {
        choice.finish = finish_reason(event.stop);
        if (event.stop == api::Stop::stop_string) choice.stop_text = event.detail;
    }
    if (!setup_.stream) return;
    if (!choice.is_at_start && (!choice.text.empty() || !choice.logprobs.empty())) {
        JsonWriter delta;
        delta.begin_object().member("content", choice.text).end_object();
        out.push_back(chunk(index, delta.take(), &choice, nullptr));
        choice.text.clear();
        choice.logprobs.clear();
    }
    if (is_end) out.push_back(chunk(index, "{}", nullptr, &choice));
}

void ChatWriter::write_logprobs(JsonWriter &out, const Choice &choice) const {
    out.begin_object().key("content").begin_array();
    for (const std::string &token : choice.logprobs) out.raw(token);
    out.end_array().end_object();
}

std::string ChatWriter::chunk(size_t index, const std::string &delta, const Choice *logprobs,
                              const Choice *finish) const {
    JsonWriter out;
    out.begin_object();
    write_head(out, setup_.head, "chat.completion.chunk");
    out.key("choices").begin_array().begin_object().member("index", index);
    out.key("delta").raw(delta).key("logprobs");
    if (setup_.logprobs && logprobs != nullptr) {
        write_logprobs(out, *logprobs);
    } else {
        out.null();
    }
    out.key("finish_reason");
    if (finish != nullptr) {
        out.value(finish->finish).member("stop_reason", finish->stop_text);
    } else {
        out.null();
    }
    out.end_object().end_array().end_object();
    return out.take();
}

std::string ChatWriter::usage_chunk(const UsageSum &usage) const {
    return usage_text(setup_.head, "chat.completion.chunk", usage);
}

std::string ChatWriter::whole(const UsageSum &usage) const {
    JsonWriter out;
    out.begin_object();
    write_head(out, setup_.head, "chat.completion");
    out.key("choices").begin_array();
    for (size_t i = 0; i < choices_.size(); ++i) {
        const Choice &choice = choices_[i];
        out.begin_object().member("index", i).key("message").begin_object();
        out.member("role", "assistant").member("content", choice.text).key("refusal").null();
        out.end_object().key("logprobs");
        if (setup_.logprobs) {
            write_logprobs(out, choice);
        } else {
            out.null();
        }
        out.member("finish_reason", choice.finish == nullptr ? "stop" : choice.finish);
        out.member("stop_reason", choice.stop_text).end_object();
    }
    out.end_array().key("usage");
    write_usage(out, usage);
    out.end_object();
    return out.take();
}

} // namespace keel::server
