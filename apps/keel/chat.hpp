#pragma once

#include "line_reader.hpp"
#include "trace_option.hpp"

#include "run/conversation.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::cli {

struct ChatSettings {
    std::optional<std::string> system;
    std::string chat_template; // of the first model, a name; empty: what its files say
    // Of the command line, for models that /switch loads too.
    std::vector<std::string> overrides; // as --set takes them
    std::vector<std::string> stop;      // empty: the pipeline's
    std::string load;                   // a saved chat to go on with
    bool stats = false, quiet = false;
    TraceOption trace; // of each model that is loaded
};

// A chat on the terminal, or over pipes: a question a line, lines that begin with '/' are commands.
class Chat {
  public:
    // Loads the pipeline. Throws what that throws.
    Chat(const pipeline::PipelineConfig &config, std::shared_ptr<HostServices> host,
         ChatSettings settings);

    // Runs until the input ends, /exit, or Ctrl-C outside an answer (which throws Interrupted).
    // Returns the exit code: 1 if a line from a pipe failed.
    int run(LineReader &reader);

  private:
    // A loaded model with what was said. In this order: each lives on the one before.
    struct Running {
        std::unique_ptr<Pipeline> pipeline;
        std::unique_ptr<Session> session;
        std::unique_ptr<Conversation> conversation;
    };
    Running load(const pipeline::PipelineConfig &config, const std::string &chat_template,
                 const std::optional<std::string> &system) const;
    // Handles one line of the input. True: it succeeded. Throws the errors of answering if the run
    // itself failed.
    bool perform(const std::string &line);
    void greet() const;
    void answer(const std::string &question);
    void show_stats() const;
    void switch_to(std::string_view arguments);
    void switch_backend(Engine &engine);
    void check_switch_target(const std::string &target) const;
    void command(std::string_view line);                           // without its '/'
    std::optional<std::string> question(LineReader &reader) const; // lines that end in '\' go on

    std::shared_ptr<HostServices> host_;
    ChatSettings settings_;
    Running running_;
    std::optional<GenerateResult> last_;
    bool leave_ = false;
};

} // namespace keel::cli
