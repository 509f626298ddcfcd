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
    // Name of the first model's chat template. Empty: the template that the model's files name.
    std::string chat_template;
    // Overrides from the command line. They also apply to models that /switch loads.
    std::vector<std::string> overrides; // in the form of --set
    std::vector<std::string> stop;      // stop strings; if the list is empty, the stop strings of
                                        // the pipeline are used
    std::string load;                   // file of a saved chat to continue
    bool stats = false, quiet = false;
    TraceOption trace; // records each model that is loaded
};

// A chat on the terminal or over pipes. Each input line is a question, or a command if it begins
// with '/'.
class Chat {
  public:
    // Loads the pipeline. Throws all errors of loading.
    Chat(const pipeline::PipelineConfig &config, std::shared_ptr<HostServices> host,
         ChatSettings settings);

    // Runs until the input ends or the user enters /exit. Throws Interrupted if the user presses
    // Ctrl-C while no answer is generated. Returns the exit code. The exit code is 1 if a line from
    // a pipe failed, and otherwise 0.
    int run(LineReader &reader);

  private:
    // A loaded model and its conversation. Keep the order of the members, because each member uses
    // the member before it.
    struct Running {
        std::unique_ptr<Pipeline> pipeline;
        std::unique_ptr<Session> session;
        std::unique_ptr<Conversation> conversation;
    };
    Running load(const pipeline::PipelineConfig &config, const std::string &chat_template,
                 const std::optional<std::string> &system) const;
    // Handles one line of input. Returns false if the line failed. Throws if an error ends the
    // whole run.
    bool perform(const std::string &line);
    void greet() const;
    void answer(const std::string &question);
    void show_stats() const;
    void switch_to(std::string_view arguments);
    void switch_backend(Engine &engine);
    void check_switch_target(const std::string &target) const;
    void command(std::string_view line); // runs a chat command; `line` has no '/' at the beginning
    // Reads a question. A line that ends with '\' continues on the next line.
    std::optional<std::string> question(LineReader &reader) const;

    std::shared_ptr<HostServices> host_;
    ChatSettings settings_;
    Running running_;
    std::optional<GenerateResult> last_;
    bool leave_ = false;
};

} // namespace keel::cli
