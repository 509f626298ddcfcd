#pragma once

#include "run/generate.hpp"
#include "text/chat_template.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Texts for error messages. `plain`: the command to use for text without a chat template. `chosen`:
// the option that chooses a template.
struct ChatWays {
    std::string_view plain = "'keel run'", chosen = "--template NAME";
};
// Returns the chat template with this name. If the name is empty, returns the template that the
// model's files name. Throws Error(usage) if the name is unknown (the error lists all names), or if
// the files name no template, or a template that cannot be used (the error says what to do).
ChatTemplate choose_chat_template(const std::filesystem::path &model, std::string_view name,
                                  const ChatWays &ways = {});

// A chat in turns: a session whose text follows a chat template. Each turn reads only the new
// tokens. Text that the model wrote is not read again, with one exception: a Jinja template may
// render an earlier turn in another way than before, for example without the model's thoughts. Then
// the session is truncated to the tokens that stay the same, and reads the rest again. If tokens
// that must be removed were evicted, the session reads the whole conversation again. Not
// thread-safe.
class Conversation {
  public:
    // Resets the session, which must outlive this object. `system`: the system prompt, if any. Its
    // tokens are protected from eviction if two conditions hold: the config protects system prompts
    // (policy.protect.system_prompt), and the pipeline was opened with
    // PipelineOptions::has_system_prompt. Throws Error(input) with the key if the budget has no
    // room for these tokens.
    Conversation(Session &session, ChatTemplate chat, std::optional<std::string> system);

    // Reads a question and generates the answer. options.on_text gets the text of the answer, and
    // the result also has this text. Random numbers continue from one answer to the next. Throws
    // Error(resource) if the question does not fit. If the user cancels before the answer begins,
    // the result has StopReason::cancelled and no ids. In both cases the conversation does not
    // change.
    GenerateResult ask(std::string_view question, const GenerateOptions &options);
    // Pins the last question: its tokens and the template's tokens around it are not evicted until
    // the session reads the whole conversation again. Throws Error(usage) if there is no question
    // or a part of it was evicted already. Throws Error(input) if the budget has no room. Returns
    // the number of all pinned tokens.
    int64_t pin_question();
    // Removes all turns except the system prompt. Random numbers start again from the seed.
    void reset();
    // Replaces the conversation by these turns. The session reads them together with the next
    // question.
    void take_over(std::vector<ChatMessage> turns);

    // Write and read a session file that also has the turns, see session_file.hpp. load() replaces
    // the whole conversation, including the system prompt. If the file has no chat or has another
    // template, load() throws Error(input), and the conversation does not change.
    void save(const std::filesystem::path &path);
    void load(const std::filesystem::path &path);

    // Returns questions and answers, without the system prompt.
    std::span<const ChatMessage> turns() const { return turns_; }
    const std::optional<std::string> &system() const { return system_; }
    const ChatTemplate &chat() const { return chat_; }
    Session &session() { return session_; }

  private:
    void protect_system();
    int64_t system_tokens() const;
    std::vector<ChatMessage> messages_with(std::string_view question) const;
    std::vector<int32_t> encode_question(std::string_view question) const;
    std::vector<int32_t> render_question(std::string_view question, bool &was_truncated);
    std::optional<std::vector<int32_t>> new_tokens(std::span<const ChatMessage> all) const;
    void take_back(int64_t tokens, std::optional<int32_t> pending);
    void read_anew();
    void drop_stop_string(const GenerateResult &result, size_t text_bytes, int64_t before);
    void read_note(const std::string &note, std::vector<ChatMessage> &turns,
                   std::optional<std::string> &system, const std::string &file) const;

    Session &session_;
    ChatTemplate chat_;
    std::optional<std::string> system_;
    std::vector<ChatMessage> turns_;
    std::optional<Rng::State> random_;
    int64_t question_from_ = 0,
            question_to_ = 0; // the tokens of the last question; both numbers are equal if there is
                              // none
};

} // namespace keel
