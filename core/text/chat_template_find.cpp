// Finds the chat template in a model's files.
#include "text/chat_template.hpp"

#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "base/json_reader.hpp"
#include "format/gguf.hpp"
#include "text/chat_prompt.hpp"
#include "text/text_file.hpp"

namespace keel {

ChatTemplate FoundChatTemplate::open() const {
    return ChatTemplate("jinja-" + fingerprint(jinja + '\0' + tool_use).substr(0, 8),
                        std::make_shared<ModelTemplate>(jinja, tool_use, name));
}

FoundChatTemplate find_chat_template(std::string_view chat_template_jinja,
                                     std::string_view tokenizer_config_json,
                                     const std::string &folder) {
    const auto place = [&](const char *file) {
        return (std::filesystem::path(folder) / file).string();
    };
    FoundChatTemplate found;
    if (!chat_template_jinja.empty()) {
        found.jinja = chat_template_jinja;
        found.name = place("chat_template.jinja");
    } else if (!tokenizer_config_json.empty()) {
        const JsonLimits limits{size_t{128} << 20, 64, 8'000'000, true};
        const JsonDocument config(tokenizer_config_json, place("tokenizer_config.json"), limits);
        found.name = config.name() + ": chat_template";
        if (const auto node = config.root().find("chat_template")) {
            if (!node->is_array()) {
                found.jinja = node->text();
            } else {
                for (std::size_t i = 0; i < node->size(); ++i) {
                    const std::string &name = node->element(i).at("name").text();
                    if (name == "default") found.jinja = node->element(i).at("template").text();
                    if (name == "tool_use") found.tool_use = node->element(i).at("template").text();
                }
            }
        }
    }
    return found;
}

FoundChatTemplate find_chat_template(const GgufFile &file, const std::string &name) {
    FoundChatTemplate found;
    found.name = name + ": tokenizer.chat_template";
    if (const auto text = file.text("tokenizer.chat_template")) found.jinja = *text;
    return found;
}

FoundChatTemplate load_chat_template(const std::filesystem::path &path) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored) && is_gguf_file(path))
        return find_chat_template(GgufFile(path), path.string());
    const auto home = std::filesystem::is_directory(path, ignored) ? path : path.parent_path();
    return find_chat_template(read_text_file(home / "chat_template.jinja", false),
                              read_text_file(home / "tokenizer_config.json", false), home.string());
}

} // namespace keel
