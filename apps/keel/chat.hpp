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
    // name of the first model's template; empty: the template that the model's files name
    std::string chat_template;
    // From the command line. These also apply to models that /switch loads.
    std::vector<std::string> overrides; // in the form of --set
    std::vector<std::string> stop;      // empty: the pipeline's
    std::string load;                   // a saved chat to continue
    bool stats = false, quiet = false;
    TraceOption trace; // records each model that is loaded
};

// A chat on the terminal or over pipes. Each line is a question. Lines that begin with '/' are
// commands.
class Chat {
  public:
    // Loads the pipeline. Throws the errors of loading.
    Chat(const pipeline::PipelineConfig &config, std::shared_ptr<HostServices> host,
         ChatSettings settings);

    // Runs until the input ends, /exit, or a Ctrl-C while no answer is generated (which throws
    // Interrupted). Returns the exit code: 1 if a line from a pipe failed.
    int run(LineReader &reader);

  private:
    // A loaded model and its conversation. The order matters: each member uses the one before it.
    struct Running {
        std::unique_ptr<Pipeline> pipeline;
        std::unique_ptr<Session> session;
        std::unique_ptr<Conversation> conversation;
    };
    Running load(const pipeline::PipelineConfig &config, const std::string &chat_template,
                 const std::optional<std::string> &system) const;
    // Handles one line of input. Returns true if it succeeded. Throws the errors of answering if
    // the run itself failed.
    bool perform(const std::string &line);
    void greet() const;
    void answer(const std::string &question);
    void show_stats() const;
    void switch_to(std::string_view arguments);
    void switch_backend(Engine &engine);
    void check_switch_target(const std::string &target) const;
    void command(std::string_view line); // `line` without its '/'
    // a line that ends in '\' is continued
    std::optional<std::string> question(LineReader &reader) const;

    std::shared_ptr<HostServices> host_;
    ChatSettings settings_;
    Running running_;
    std::optional<GenerateResult> last_;
    bool leave_ = false;
};

} // namespace keel::cli
