#include "console.hpp"
#include "interrupt.hpp"
#include "log_sink.hpp"
#include "program.hpp"
#include "usage.hpp"

#include "base/error.hpp"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

#ifndef KEEL_VERSION
#error "define KEEL_VERSION as the project's version; CMake does it"
#endif

namespace keel::cli {
namespace {

constexpr void (*commands[])(Command &, Program &) = {
    add_run,       add_chat,    add_serve,    add_bench,    add_compare, add_eval,   add_ab,
    add_replay_op, add_inspect, add_quantize, add_tokenize, add_plugins, add_config,
};

constexpr int failed = 1, usage_error = 2;

void describe(Command &keel, Program &program) {
    keel.footer =
        "First steps, in " + data_folder().value_or("a clone of the repository") +
        ":\n"
        "  keel run configs/quickstart.yaml              writes a story with a small model\n"
        "  keel run models/tiny -p \"Once upon a time\"    does the same without a pipeline file\n"
        "  keel config init models/tiny -o my.yaml       writes a pipeline file with comments\n"
        "\nDocumentation: docs/README.md lists all pages\n"
        "\nExit codes: 0 success, 1 failure during the run, 2 wrong command line or file, 3 worse "
        "than allowed "
        "(ab compare), 130 interrupted.";
    keel.flag("--version", program.version, "Show the version");
    keel.action = [&keel, &program] {
        console().out(program.version ? "keel " KEEL_VERSION "\n"
                                      : with_installed_docs(help_text(keel)));
        return EXIT_SUCCESS;
    };
    for (const auto add : commands) add(keel, program);
}

int report(const std::string &text, int code) {
    console().end_line();
    console().message("keel: error: ", text, 31);
    return code;
}

int report_interrupt() {
    console().end_line();
    console().message("keel: ", "interrupted");
    return interrupted_code;
}

int run_action(const Command &command) {
    try {
        return command.action();
    } catch (const OutputClosed &) {
        return EXIT_SUCCESS;
    } catch (const Interrupted &) {
        return report_interrupt();
    } catch (const Error &e) {
        // Work that a Ctrl-C interrupts, such as an upload of weights, can fail with an error of
        // its own.
        if (interrupted()) return report_interrupt();
        return report(e.what(), e.exit_code());
    } catch (const std::bad_alloc &) {
        return report("out of memory; use a smaller model.weights (q8_0, q4_0), kv.dtype or "
                      "model.context",
                      usage_error);
    } catch (const std::exception &e) {
        return report(std::string("unexpected error: ") + e.what() + "; please report this",
                      failed);
    } catch (...) {
        return report("unexpected error of unknown type; please report this", failed);
    }
}

int run(int argc, char **argv) {
    Program program;
    Command keel(
        "keel",
        "Runs Llama-family language models. Backends and KV-cache policies are plugins; a YAML "
        "pipeline file selects them.",
        "Show this help; 'keel COMMAND --help' shows the help of a command");
    describe(keel, program);
    const CommandLine line = read_command_line(keel, {argv + 1, argv + argc});
    try {
        if (asks_for_help(line)) {
            console().out(with_installed_docs(help_text(*line.command)));
            return EXIT_SUCCESS;
        }
        take_values(keel, line);
    } catch (const Error &e) {
        return report(e.what(), e.exit_code());
    }
    install_log_sink(program);
    return run_action(*line.command);
}

} // namespace
} // namespace keel::cli

int main(int argc, char **argv) {
    // SIGPIPE is ignored, so that a write to a closed pipe returns an error (see OutputClosed)
    std::signal(SIGPIPE, SIG_IGN);
    try {
        return keel::cli::run(argc, argv);
    } catch (const keel::cli::OutputClosed &) {
        return EXIT_SUCCESS;
    } catch (const std::exception &e) {
        return keel::cli::report(e.what(), keel::cli::failed);
    }
}
