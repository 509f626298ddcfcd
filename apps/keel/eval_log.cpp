#include "eval_log.hpp"

#include "console.hpp"
#include "own_page.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/evictions/history.hpp"
#include "platform/new_file.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct LogArguments {
    std::string file, html;
    bool json = false;
    LogView view;
};

int run_log(const LogArguments &a, const Program &program) {
    if (!a.html.empty()) require_own_page(a.html, "--html", log_html_mark, "keel eval log");
    const LogHistory history = read_eviction_log(a.file);
    const std::string text = log_text(history, a.view); // throws if the view is invalid
    if (!a.html.empty()) {
        write_whole_file(a.html, log_html(history, a.view));
        if (!program.quiet)
            console().message("keel: ", fmt::format("wrote {}; open it in a browser", a.html));
    }
    if (a.json) {
        print_json(log_json(history));
    } else {
        console().out(text);
    }
    return 0;
}

} // namespace

void add_eval_log(Command &eval, Program &program) {
    Command &command = add_command(
        eval, program, "log", "Show which tokens a policy evicted, from an eviction log",
        {{"keel run my.yaml --set policy.log=e.jsonl --set policy.log_positions=true",
          "writes an eviction log"},
         {"keel eval log e.jsonl", ""},
         {"keel eval log e.jsonl --layer 3 --html evictions.html",
          "draws each head of layer 3, and writes an HTML page"}});
    auto a = std::make_shared<LogArguments>();
    command.argument("FILE", a->file, "The eviction log: the file that policy.log named");
    command.option("--html OUT", a->html, "Also write an HTML page with all drawings");
    command.flag("--json", a->json, "Print the totals as one JSON object");
    command.option("--sequence N", a->view.sequence,
                   "Draw sequence N (default: the one with the most evictions)");
    command.option("--layer N", a->view.layer, "Draw each head of layer N");
    command.option("--head N", a->view.head, "Draw only head N");
    command.action = [a, &program] { return run_log(*a, program); };
}

} // namespace keel::cli
