#include "chat.hpp"

#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "eval/page/text_table.hpp"
#include "run/report.hpp"

#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <new>
#include <sstream>

namespace keel::cli {
namespace {

// limit for the tokens of an answer if the user sets no limit
constexpr int64_t answer_tokens = 1024;

struct ChatCommand {
    std::string_view name, arguments, doc;
};
constexpr std::array<ChatCommand, 8> commands{{
    {"help", "", "show this list"},
    {"reset", "", "start again with an empty chat; the system prompt stays"},
    {"stats", "[on|off]", "show speeds and cache of the last answer; on, off: after each answer"},
    {"pin", "", "never evict the tokens of your last question"},
    {"save", "FILE", "write the chat with its cache to a file"},
    {"load", "FILE", "continue a chat that /save wrote with this model"},
    {"switch", "TARGET [--template NAME] [KEY=VALUE]",
     "continue with another model or pipeline, which reads the whole chat again; if TARGET is a "
     "backend of 'hybrid': continue on this backend, with the same cache"},
    {"exit", "", "leave the chat; Ctrl-D does the same"},
}};

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

GenerateOptions answer_options(const pipeline::PipelineConfig &config) {
    GenerateOptions options = generate_options(config);
    if (config.generation.max_tokens.is_default()) options.max_tokens = answer_tokens;
    options.on_text = [](std::string_view text) { console().out(text); };
    options.progress = [](const char *stage, uint64_t done, uint64_t total) {
        console().progress(stage, done, total, Console::Unit::tokens);
    };
    return options;
}

// True if an override, in the form of --set, chooses the model to load.
bool names_model(std::string_view override) {
    const std::string_view key = trimmed(override.substr(0, override.find('=')));
    return key == "model.path" ||
           (key == "model" && override.find("path") != std::string_view::npos);
}

std::string answers(size_t n) { return fmt::format("{} answer{}", n, n == 1 ? "" : "s"); }

void say(std::string_view text) { console().message("keel: ", text); }

} // namespace

Chat::Chat(const pipeline::PipelineConfig &config, std::shared_ptr<HostServices> host,
           ChatSettings settings)
    : host_(std::move(host)), settings_(std::move(settings)),
      running_(load(config, settings_.chat_template, settings_.system)) {
    if (!settings_.load.empty()) running_.conversation->load(settings_.load);
}

Chat::Running Chat::load(const pipeline::PipelineConfig &config, const std::string &chat_template,
                         const std::optional<std::string> &system) const {
    PipelineOptions options;
    options.host = host_;
    options.progress = show_progress;
    options.has_system_prompt = true;
    ChatTemplate chat =
        // the template is chosen now, so that an error comes before weights are read
        choose_chat_template(*config.model.path, chat_template);
    Running running;
    settings_.trace.loading();
    running.pipeline = std::make_unique<Pipeline>(config, options);
    console().clear_progress();
    settings_.trace.watch(*running.pipeline);
    running.session = std::make_unique<Session>(*running.pipeline);
    running.conversation =
        std::make_unique<Conversation>(*running.session, std::move(chat), system);
    return running;
}

void Chat::greet() const {
    if (settings_.quiet) return;
    Pipeline &p = *running_.pipeline;
    const PolicySetup &plan = p.policy_setup();
    console().faint(fmt::format("{} | template {} | {} | context {} tokens, {}\n",
                                p.source().path(), running_.conversation->chat().name(),
                                p.backends_text(), p.context(),
                                plan.keeps_all() ? std::string("nothing is evicted")
                                                 : "policy " + plan.config().policy.name));
    const size_t turns = running_.conversation->turns().size() / 2;
    if (turns > 0) console().faint(fmt::format("continuing after {}\n", answers(turns)));
}

std::optional<std::string> Chat::question(LineReader &reader) const {
    std::string text;
    for (std::string_view prompt = "> ";; prompt = ". ") {
        auto line = reader.next(std::string(prompt));
        if (!line && text.empty()) return std::nullopt;
        text += line.value_or("");
        if (!line || !text.ends_with('\\')) return text;
        text.back() = '\n';
    }
}

int Chat::run(LineReader &reader) {
    greet();
    if (reader.is_terminal() && !settings_.quiet)
        console().faint(
            "Ctrl-C stops an answer, Ctrl-D leaves the chat, /help lists the commands\n");
    bool failed = false;
    while (!leave_) {
        const auto line = question(reader);
        if (!line) break;
        if (trimmed(*line).empty()) continue;
        if (!perform(*line)) failed = true;
        clear_interrupt(*host_);
    }
    if (reader.is_terminal()) console().out("\n");
    return failed && !reader.is_terminal() ? 1 : 0;
}

bool Chat::perform(const std::string &line) {
    const bool is_command = line.starts_with('/') && !line.starts_with("//");
    const auto refuse = [](std::string_view why) {
        console().clear_progress();
        console().end_line();
        console().message("keel: error: ", why, 31);
        return false;
    };
    try {
        if (is_command) {
            command(std::string_view(line).substr(1));
        } else {
            answer(line.starts_with("//") ? line.substr(1) : line);
        }
        return true;
    } catch (const Interrupted &) { // Ctrl-C while a model is loaded
        console().clear_progress();
        say("interrupted");
        return true;
    } catch (const Error &e) {
        if (interrupted()) {
            console().clear_progress();
            console().end_line();
            say("interrupted");
            return false;
        }
        // the run itself failed, not only this question
        if (!is_command && e.exit_code() != 2) throw;
        refuse(e.what());
        if (!is_command && e.kind() == ErrorKind::resource && running_.session->tokens() > 0)
            say("the model did not get the question; /reset empties the chat and makes room");
        return false;
    } catch (const std::bad_alloc &) {
        if (!is_command) throw;
        return refuse("out of memory"); // a failed command must not end the chat
    }
}

// Returns the difference of a session's counters between two readings. If the session was reset
// between the two readings, returns all counters of the second reading. Sizes are always the sizes
// of the second reading.
static SessionStats since(const SessionStats &before, SessionStats now) {
    if (now.prefill_tokens < before.prefill_tokens || now.decode_tokens < before.decode_tokens ||
        now.evictions < before.evictions)
        return now;
    now.prefill_tokens -= before.prefill_tokens;
    now.prefill_seconds -= before.prefill_seconds;
    now.decode_tokens -= before.decode_tokens;
    now.decode_seconds -= before.decode_seconds;
    now.evictions -= before.evictions;
    now.evicted_tokens -= before.evicted_tokens;
    now.evicted_bytes -= before.evicted_bytes;
    now.eviction_seconds -= before.eviction_seconds;
    const auto told = static_cast<std::ptrdiff_t>(std::min(before.moves.size(), now.moves.size()));
    now.moves.erase(now.moves.begin(), now.moves.begin() + told);
    now.decode_stream -= before.decode_stream;
    now.ahead_steps -= before.ahead_steps;
    now.discarded_steps -= before.discarded_steps;
    now.guessed_tokens -= before.guessed_tokens;
    now.right_guesses -= before.right_guesses;
    return now;
}

void Chat::answer(const std::string &question) {
    Conversation &conversation = *running_.conversation;
    const size_t known = conversation.turns().size();
    const SessionStats before = running_.session->stats();
    GenerateResult result = conversation.ask(question, answer_options(running_.pipeline->config()));
    result.stats = since(before, result.stats);
    console().clear_progress();
    console().end_line();
    const bool was_taken = conversation.turns().size() > known;
    if (result.reason == StopReason::cancelled)
        say(was_taken ? "interrupted" : "interrupted; the model did not get the question");
    if (result.reason == StopReason::cache_full) {
        console().message("keel: stopped: ", result.detail, 33);
        say("/reset empties the chat and makes room");
    }
    if (result.reason == StopReason::max_tokens && !settings_.quiet)
        say("the answer was cut off, because it reached generation.max_tokens (-n)");
    last_ = result;
    if (settings_.stats) show_stats();
    for (const BackendMove &move : result.stats.moves) {
        const bool is_routine = move.why == BackendMove::Why::phase && move.refused.empty();
        if (!settings_.stats && !settings_.quiet && !is_routine) say("switch: " + move_text(move));
    }
}

void Chat::show_stats() const {
    Session &session = *running_.session;
    if (last_) console().faint(closing_line(*last_) + "\n");
    console().faint(
        fmt::format("{}, {} tokens so far; the cache has {} tokens of at most {} (the context)\n",
                    answers(running_.conversation->turns().size() / 2), session.tokens(),
                    session.cache().cache().max_length(), running_.pipeline->context()));
}

// Moves the session with its cache to another backend of the pipeline.
void Chat::switch_backend(Engine &engine) {
    const size_t known = running_.session->stats().moves.size();
    switch (running_.session->switch_to(engine)) {
    case Session::Switch::there:
        return say(fmt::format("the chat already runs on {}", engine.name));
    case Session::Switch::refused:
    case Session::Switch::done: break;
    }
    const std::vector<BackendMove> &moves = running_.session->stats().moves;
    say(moves.size() > known ? "switch: " + move_text(moves.back())
                             : fmt::format("the chat now runs on {}", engine.name));
}

// Checks the target of /switch. A target that is neither a backend nor a file is probably a
// misspelled backend.
void Chat::check_switch_target(const std::string &target) const {
    std::error_code error;
    const bool is_hybrid = running_.pipeline->config().hybrid.is_given();
    if (!is_hybrid || target.find('/') != std::string::npos ||
        std::filesystem::exists(target, error))
        return;
    std::vector<std::string> names;
    for (const auto &engine : running_.pipeline->engines()) names.push_back(engine->name);
    throw_error(ErrorKind::usage,
                "/switch: '{}' is neither a backend of this pipeline ({}) nor a file or folder{}",
                printable(target, 100), fmt::join(names, ", "), did_you_mean(target, names));
}

// Keeps the old model until the new model is loaded, so that a failed load loses nothing.
void Chat::switch_to(std::string_view arguments) {
    std::istringstream words{std::string(arguments)};
    std::string target, word, chat_template;
    std::vector<std::string> sets;
    bool has_stop = false;
    for (const std::string &given : settings_.overrides)
        // TARGET replaces overrides that choose a model
        if (!names_model(given)) sets.push_back(given);
    words >> target;
    while (words >> word) {
        if (word != "--template") {
            has_stop = has_stop || word.starts_with("generation.stop=");
            sets.push_back(word);
        } else if (!(words >> chat_template)) {
            throw_error(
                ErrorKind::usage,
                "/switch: expected the name of a chat template after --template, found nothing");
        }
    }
    if (target.empty())
        throw_error(ErrorKind::usage, "/switch: expected a pipeline file, a model{}, found nothing",
                    running_.pipeline->config().hybrid.is_given() ? " or the name of a backend"
                                                                  : "");
    if (Engine *engine = running_.pipeline->engines().find(target);
        engine != nullptr && running_.pipeline->config().hybrid.is_given())
        return switch_backend(*engine);
    check_switch_target(target);
    pipeline::PipelineConfig config = pipeline::config_for_target(target, sets);
    if (!settings_.stop.empty() && !has_stop) config.generation.stop.value = settings_.stop;
    Running next = load(config, chat_template, running_.conversation->system());
    const auto turns = running_.conversation->turns();
    next.conversation->take_over({turns.begin(), turns.end()});
    running_ = std::move(next);
    last_.reset();
    greet();
    if (!running_.conversation->turns().empty())
        say("the new model cannot use the old cache, so it reads the whole chat again with your "
            "next "
            "question");
}

void Chat::command(std::string_view line) {
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    const std::string name(line.substr(0, end));
    const std::string argument(trimmed(line.substr(end)));
    Conversation &conversation = *running_.conversation;
    const auto need_file = [&] {
        if (argument.empty())
            throw_error(ErrorKind::usage, "/{}: expected the name of a file, found nothing", name);
    };
    const auto known =
        std::ranges::find_if(commands, [&](const ChatCommand &c) { return c.name == name; });
    if (known != commands.end() && known->arguments.empty() && !argument.empty())
        throw_error(ErrorKind::usage, "/{}: expected no argument, found '{}'", name,
                    printable(argument, 40));
    if (name == "help") {
        std::vector<std::vector<std::string>> rows;
        for (const ChatCommand &c : commands)
            rows.push_back({fmt::format("/{} {}", c.name, c.arguments), std::string(c.doc)});
        console().faint(left_table(rows) + "A line that ends with \\ continues on the next line. A "
                                           "question that begins with / needs //.\n");
    } else if (name == "reset") {
        conversation.reset();
        last_.reset();
        say("forgotten");
    } else if (name == "stats") {
        if (!argument.empty() && argument != "on" && argument != "off")
            throw_error(ErrorKind::usage, "/stats: expected on, off or nothing, found '{}'",
                        printable(argument, 40));
        if (!argument.empty()) settings_.stats = argument == "on";
        if (argument != "off") show_stats();
    } else if (name == "pin") {
        const int64_t pinned = conversation.pin_question();
        say(running_.pipeline->policy_setup().keeps_all()
                ? std::string("nothing to pin, because this policy evicts nothing")
                : fmt::format(
                      "pinned; {} tokens are pinned in total, in addition to the system prompt",
                      pinned));
    } else if (name == "save") {
        need_file();
        conversation.save(argument);
        say(fmt::format("{} saved to {}", answers(conversation.turns().size() / 2),
                        printable(argument, 200)));
    } else if (name == "load") {
        need_file();
        conversation.load(argument);
        last_.reset();
        say(fmt::format("continuing after {}", answers(conversation.turns().size() / 2)));
    } else if (name == "switch") {
        switch_to(argument);
    } else if (name == "exit" || name == "quit") {
        leave_ = true;
    } else {
        std::vector<std::string> names;
        for (const ChatCommand &c : commands) names.push_back(fmt::format("/{}", c.name));
        throw_error(
            ErrorKind::usage,
            "unknown command /{}{} (/help lists all; a question that begins with / needs //)",
            printable(name, 40), did_you_mean(fmt::format("/{}", name), names));
    }
}

} // namespace keel::cli
