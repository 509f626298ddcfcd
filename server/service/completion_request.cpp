#include "server/service/completion_request.hpp"

namespace keel::server {
namespace {

Prompt read_prompt(const JsonNode &node, int64_t vocabulary) {
    Prompt prompt;
    if (node.is_text()) {
        prompt.text = node.text();
        return prompt;
    }
    if (!node.is_array()) node.expected("a text or a list of token ids");
    prompt.is_ids = true;
    prompt.ids = read_ids(node, vocabulary);
    if (prompt.ids.empty()) node.expected("at least one token id");
    return prompt;
}

void read_prompts(const JsonNode &node, int64_t vocabulary, CompletionRequest &out) {
    const bool is_list = node.is_array() && node.size() > 0 && !node.element(0).is_number();
    if (!is_list) {
        out.prompts.push_back(read_prompt(node, vocabulary));
        return;
    }
    out.is_one = false;
    for (size_t i = 0; i < node.size(body_limit::prompts); ++i)
        out.prompts.push_back(read_prompt(node.element(i), vocabulary));
}

} // namespace

std::vector<int32_t> read_ids(const JsonNode &list, int64_t vocabulary) {
    std::vector<int32_t> ids;
    ids.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i)
        ids.push_back(static_cast<int32_t>(list.element(i).integer(0, vocabulary - 1)));
    return ids;
}

CompletionRequest read_completion_request(const JsonNode &body, const api::Generation &defaults,
                                          int64_t vocabulary) {
    CompletionRequest out;
    static_cast<CommonFields &>(out) = read_common_fields(body, defaults);
    read_prompts(required(body, "prompt"), vocabulary, out);
    out.echo = body.flag_or("echo", false);
    out.add_special_tokens = body.flag_or("add_special_tokens", true);
    if (const auto v = body.find("logprobs"))
        out.logprobs = v->integer(0, body_limit::top_logprobs);
    if (body.find("messages"))
        body.fail("messages", "/v1/completions takes a prompt; send messages to "
                              "/v1/chat/completions");
    return out;
}

} // namespace keel::server
