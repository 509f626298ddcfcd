#include "server/service/chat_renderer.hpp"

namespace keel::server {

std::vector<int32_t> ChatRenderer::render_chat(std::span<const ChatMessage> messages) const {
    return chat_.encode(tokenizer_, chat_.conversation(messages), false);
}

std::string ChatRenderer::render_text(std::span<const ChatMessage> messages) const {
    return tokenizer_.decode(render_chat(messages), DecodeOptions{.skip_special = false});
}

} // namespace keel::server
