#include "server/service/completion_writer.hpp"

#include <algorithm>
#include <map>

namespace keel::server {
namespace {

// An object from token texts to values: the most likely tokens and the token of the text. If two
// tokens have the same text, it gets the larger value.
std::string top_object(const Tokenizer &tokenizer, const api::Logprobs &token) {
    std::map<std::string, double> values;
    const auto add = [&](int32_t id, double value) {
        const auto [entry, is_new] = values.emplace(token_name(tokenizer, id), value);
        if (!is_new) entry->second = std::max(entry->second, value);
    };
    for (const api::TokenLogprob &other : token.top) add(other.id, shown_logprob(other.logprob));
    add(token.chosen.id, chosen_logprob(token));
    JsonWriter out;
    out.begin_object();
    for (const auto &entry : values) out.member(entry.first, entry.second);
    out.end_object();
    return out.take();
}

} // namespace

CompletionWriter::CompletionWriter(Setup setup, const Tokenizer &tokenizer)
    : setup_(std::move(setup)), tokenizer_(tokenizer),
      choices_(setup_.texts.size() * static_cast<size_t>(setup_.choices)),
      is_echoed_(setup_.texts.size(), !setup_.echo) {
    // Without echo, the text begins after the prompt, so the first token keeps its leading space.
    if (!setup_.echo)
        for (Choice &choice : choices_) choice.counter.skip(0);
}

void CompletionWriter::add_token(Choice &choice, int32_t id, const api::Logprobs *logprobs) {
    choice.tokens.push_back(token_name(tokenizer_, id));
    choice.offsets.push_back(choice.counter.push(tokenizer_, id));
    if (logprobs != nullptr) {
        choice.logprobs.emplace_back(chosen_logprob(*logprobs));
        choice.top.push_back(top_object(tokenizer_, *logprobs));
    } else { // the first token of a text has no probability
        choice.logprobs.emplace_back(std::nullopt);
        choice.top.emplace_back("null");
    }
}

void CompletionWriter::begin(Chunks &out) {
    if (setup_.logprobs) return; // the prompt is written when its probabilities are known
    for (size_t prompt = 0; prompt < setup_.texts.size(); ++prompt)
        echo_prompt(prompt, nullptr, out);
}

void CompletionWriter::take_prompt(size_t prompt, const std::vector<api::Logprobs> &tokens,
                                   Chunks &out) {
    echo_prompt(prompt, &tokens, out);
}

void CompletionWriter::echo_prompt(size_t prompt, const std::vector<api::Logprobs> *tokens,
                                   Chunks &out) {
    if (is_echoed_[prompt]) return;
    is_echoed_[prompt] = true;
    const auto n = static_cast<size_t>(setup_.choices);
    for (size_t index = prompt * n; index < (prompt + 1) * n; ++index) {
        Choice &choice = choices_[index];
        choice.text = setup_.texts[prompt];
        const std::vector<int32_t> &ids = setup_.prompts[prompt]; // empty without log probabilities
        for (size_t i = 0; i < ids.size(); ++i) {
            const bool has_value = tokens != nullptr && i > 0 && i <= tokens->size();
            add_token(choice, ids[i], has_value ? &(*tokens)[i - 1] : nullptr);
        }
        if (setup_.stream) out.push_back(chunk(index));
    }
}

void CompletionWriter::take_event(size_t prompt, const api::RequestEvent &event, Chunks &out) {
    const size_t index =
        prompt * static_cast<size_t>(setup_.choices) + static_cast<size_t>(event.choice);
    Choice &choice = choices_.at(index);
    echo_prompt(prompt, nullptr, out); // a prompt of one token has no probabilities
    choice.text += event.text;
    if (setup_.logprobs)
        for (size_t i = 0; i < event.ids.size(); ++i)
            add_token(choice, event.ids[i],
                      i < event.logprobs.size() ? &event.logprobs[i] : nullptr);
    if (event.kind == api::RequestEvent::Kind::end) {
        choice.finish = finish_reason(event.stop);
        if (event.stop == api::Stop::stop_string) choice.stop_text = event.detail;
    }
    const bool has_news =
        !choice.text.empty() || !choice.tokens.empty() || choice.finish != nullptr;
    if (setup_.stream && has_news) out.push_back(chunk(index));
}

void CompletionWriter::write_choice(JsonWriter &out, size_t index) const {
    const Choice &choice = choices_[index];
    out.begin_object().member("index", index).member("text", choice.text).key("logprobs");
    if (setup_.logprobs) {
        out.begin_object().key("tokens").begin_array();
        for (const std::string &token : choice.tokens) out.value(token);
        out.end_array().key("token_logprobs").begin_array();
        for (const auto &value : choice.logprobs) out.value(value);
        out.end_array().key("top_logprobs").begin_array();
        for (const std::string &top : choice.top) out.raw(top);
        out.end_array().key("text_offset").begin_array();
        for (const int64_t offset : choice.offsets) out.value(offset);
        out.end_array().end_object();
    } else {
        out.null();
    }
    out.key("finish_reason");
    if (choice.finish != nullptr) {
        out.value(choice.finish);
    } else {
        out.null();
    }
    out.member("stop_reason", choice.stop_text).end_object();
}

// One event of a stream. The part that it has is then removed from the choice.
std::string CompletionWriter::chunk(size_t index) {
    JsonWriter out;
    out.begin_object();
    write_head(out, setup_.head, "text_completion");
    out.key("choices").begin_array();
    write_choice(out, index);
    out.end_array().end_object();
    Choice &choice = choices_[index];
    choice.text.clear();
    choice.tokens.clear();
    choice.top.clear();
    choice.logprobs.clear();
    choice.offsets.clear();
    return out.take();
}

std::string CompletionWriter::usage_chunk(const UsageSum &usage) const {
    return usage_text(setup_.head, "text_completion", usage);
}

std::string CompletionWriter::whole(const UsageSum &usage) const {
    JsonWriter out;
    out.begin_object();
    write_head(out, setup_.head, "text_completion");
    out.key("choices").begin_array();
    for (size_t i = 0; i < choices_.size(); ++i) write_choice(out, i);
    out.end_array().key("usage");
    write_usage(out, usage);
    out.end_object();
    return out.take();
}

} // namespace keel::server
