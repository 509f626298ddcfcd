#include "console.hpp"
#include "device_arguments.hpp"
#include "pipeline_arguments.hpp"

#include "base/error.hpp"
#include "eval/replay/replay.hpp"
#include "reference/reference.hpp"
#include "run/pipeline.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct ReplayArguments {
    std::string file;
    DeviceArguments device;
    double bound = -1; // negative: use the table of bounds
    bool json = false;
};

bool is_fast(const pipeline::BackendSection &section) {
    if (is_reference(*section.plugin)) return false;
    const BoundPlugin bound = bind_plugin(section, KEEL_PLUGIN_BACKEND);
    const keel_param *compute = bound.params.find("compute");
    return compute != nullptr && compute->s != nullptr && std::string_view(compute->s) == "fast";
}

int run_replay(const ReplayArguments &a) {
    pipeline::require_path(a.file, "a folder or op.json that 'keel compare' saved");
    const SavedOp saved = load_saved_op(a.file);
    const pipeline::BackendSection section = a.device.section(a.device.backends.back());
    ReplayOptions options;
    if (a.bound >= 0) options.bound = a.bound;
    options.fast = is_fast(section);
    const ReplayReport report =
        replay_op(saved, open_device(section, std::make_shared<HostServices>()), options);
    if (a.json) {
        print_json(replay_json(report, KEEL_VERSION));
    } else {
        console().out(replay_text(report));
    }
    return report.passed() ? 0 : 1;
}

} // namespace

void add_replay_op(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "replay-op",
        "Run an op that 'keel compare' saved again, on a backend and on the core's reference",
        {{"keel replay-op keel-compare", "exit code 0 if the op is within its bound, else 1"},
         {"keel replay-op keel-compare --param compute=exact --param isa=scalar", ""},
         {"keel replay-op keel-compare/op.json --backend ./my_backend.so --json", ""}});
    auto a = std::make_shared<ReplayArguments>();
    command.argument("FILE", a->file, "The saved folder, or the op.json in it");
    a->device.add_to(command, false);
    command
        .option("--bound X", a->bound,
                "Allowed error (default: depends on op and dtype, see docs/reference/compare.md)")
        .range(0, 1e6);
    command.flag("--json", a->json, "Print one JSON object");
    command.action = [a] { return run_replay(*a); };
}

} // namespace keel::cli
