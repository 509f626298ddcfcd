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

// Where a chat's caller can go on otherwise, for messages: who writes without a template, and where
// one is chosen.
struct ChatWays {
    std::string_view plain = "'keel run'", chosen = "--template NAME";
};
// The chat template of a model: the one of that name, or (empty) the one that the model's files
// name. Throws Error(usage) that lists the names for an unknown name, and, where the files name
// none or one whose turns are not known, says what to do.
ChatTemplate choose_chat_template(const std::filesystem::path &model, std::string_view name,
                                  const ChatWays &ways = {});

// A chat: a session under a template, turn by turn. Only what is new is prefilled; what a model
// wrote is never read again. Not thread-safe.
class Conversation {
  public:
    // Both outlive this; the session is reset. `system`: nullopt where there is none. Where the
    // config protects system prompts (policy.protect.system_prompt) and the pipeline was made for
    // it (PipelineOptions::has_system_prompt), its tokens are never evicted. Throws Error(input),
    // naming the key, if there is no room for that.
    Conversation(Session &session, ChatTemplate chat, std::optional<std::string> system);

    // A question; the answer comes through options.on_text and as the result. Draws go on from
    // answer to answer. A question that does not fit is Error(resource), one that was cancelled
    // before its answer began has StopReason::cancelled and no ids: both leave the conversation as
    // it was.
    GenerateResult ask(std::string_view question, const GenerateOptions &options);
    // Keeps the last question from being evicted, with the marks around it, until the conversation
    // is read again. Throws Error(usage) if there is none or part of it was evicted already,
    // Error(input) if the budget has no room. The tokens that are pinned in all.
    int64_t pin_question();
    // Forgets all but the system prompt; random numbers start anew.
    void reset();
    // A conversation that is known already, in place of what is here: the session reads it with its
    // next question.
    void take_over(std::vector<ChatMessage> turns);

    // Writes and takes in a session file that knows its turns, see session_file.hpp. Throws
    // Error(input) for a session that is no chat, or one in another template; the conversation is
    // as it was then. A saved chat brings its own system prompt.
    void save(const std::filesystem::path &path);
    void load(const std::filesystem::path &path);

    // Questions and answers, without the system prompt.
    std::span<const ChatMessage> turns() const { return turns_; }
    const std::optional<std::string> &system() const { return system_; }
    const ChatTemplate &chat() const { return chat_; }
    Session &session() { return session_; }

  private:
    void protect_system();
    int64_t system_tokens() const;
    std::vector<int32_t> encode_question(std::string_view question) const;
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
            question_to_ = 0; // tokens of the last question; equal: there is none
};

} // namespace keel
