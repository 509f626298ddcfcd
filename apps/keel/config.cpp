#include "config_check.hpp"
#include "console.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/config_writer.hpp"
#include "platform/paths.hpp"
#include "plugin/registry.hpp"
#include "reference/reference.hpp"
#include "run/fit.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ConfigOptions {
    PipelineArguments pipeline;
    bool origins = false, json = false;
    std::string model, output, backend = "cpu";
};

int show(const ConfigOptions &o) {
    const pipeline::PipelineConfig config = o.pipeline.load();
    if (!o.json) {
        console().out(pipeline::to_yaml(config, o.origins));
        return 0;
    }
    Json json = Json::object();
    for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(config)) {
        json[key.path] = {{"value", key.value.empty() ? Json(nullptr) : Json(key.value)},
                          {"origin", key.where.file.empty() ? "default" : to_string(key.where)}};
    }
    print_json(json);
    return 0;
}

int check(const ConfigOptions &o) {
    const pipeline::PipelineConfig config = o.pipeline.load();
    const std::string summary = check_pipeline(config);
    if (o.json) {
        print_json({{"file", o.pipeline.target()}, {"ok", true}, {"summary", summary}});
    } else {
        console().out(fmt::format("{}: ok: {}\n", o.pipeline.target(), summary));
    }
    return 0;
}

// Returns the model's path relative to the new file's folder, or the absolute path if the relative
// path has too many "..".
std::string path_from(const fs::path &folder, const fs::path &model) {
    const fs::path relative = absolute_path(model).lexically_relative(absolute_path(folder));
    const auto parents = std::count(relative.begin(), relative.end(), fs::path(".."));
    return relative.empty() || parents > 2 ? absolute_path(model).string() : relative.string();
}

// Checks that the given name is a backend, and returns the name for the new file. The function
// makes a path absolute, because the user can move the new file later.
std::string checked_backend(const std::string &given) {
    if (is_reference(given)) return given;
    const std::string backend = is_plugin_path(given) ? absolute_path(given).string() : given;
    PluginRegistry::process().get(backend, KEEL_PLUGIN_BACKEND, {"--backend", 0, 0});
    return backend;
}

std::string new_pipeline(const ConfigOptions &o) {
    const std::string backend = checked_backend(o.backend);
    const fs::path model = pipeline::model_folder(o.model);
    const auto source = open_model_source(model);
    const Fit fit = fit_to_memory(*source, memory_info());
    // `parent` is empty for a file name without a folder.
    const fs::path parent = fs::path(o.output).parent_path();
    const fs::path folder = parent.empty() ? fs::path(".") : parent;
    std::vector<pipeline::InitValue> values = {
        {"model.path", path_from(folder, model), {}},
        {"model.context", std::to_string(fit.context), fit.context_note},
        {"backend.plugin", backend, {}},
        {"kv.dtype", keel_dtype_name(fit.kv), fit.kv_note},
        {"policy.plugin", "none",
         "'keel plugins list' shows all policies; with one that evicts, texts may be longer than "
         "the "
         "context."},
        {"strict", "false", {}},
        {"sampling.temperature", "0.7", {}},
        {"sampling.seed", "1", {}},
        {"generation.prompt", "Once upon a time", {}},
        {"generation.max_tokens", "200", {}},
    };
    if (fit.weights != KEEL_DTYPE_NONE)
        values.push_back({"model.weights", keel_dtype_name(fit.weights), fit.weights_note});
    if (!fit.fits) console().message("keel: warning: ", fit.context_note, 33);
    return pipeline::init_yaml(values);
}

// Writes a new file. Never replaces an existing file. Removes a partly written file.
void write_new(const std::string &path, const std::string &text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        throw_error(ErrorKind::usage,
                    "{}: the file exists already and is not replaced; choose another name with -o",
                    path);
    if (fd < 0) throw_error(ErrorKind::input, "{}: cannot write: {}", path, std::strerror(errno));
    size_t done = 0;
    int error = 0;
    while (done < text.size() && error == 0) {
        const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
        if (n >= 0) {
            done += static_cast<size_t>(n);
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    if (::close(fd) != 0 && error == 0) error = errno;
    if (error == 0) return;
    ::unlink(path.c_str());
    throw_error(ErrorKind::input, "{}: cannot write: {}", path, std::strerror(error));
}

int init(const ConfigOptions &o, const Program &program) {
    const std::string text = new_pipeline(o);
    if (o.output.empty() || o.output == "-") {
        console().out(text);
        return 0;
    }
    write_new(o.output, text);
    if (!program.quiet)
        console().message("keel: ", fmt::format("wrote {0}; to run it: keel run {0}", o.output));
    return 0;
}

} // namespace

void add_config(Command &keel, Program &program) {
    Command &command = keel.add_command("config", "Show, check and write pipeline files");
    command.footer = "All keys of a pipeline: docs/reference/config.md.";
    auto o = std::make_shared<ConfigOptions>();

    Command &showing =
        add_command(command, program, "show", "Print every key of a pipeline with its value",
                    {{"keel config show configs/quickstart.yaml --origins",
                      "also prints where each value was set"},
                     {"keel config show configs/quickstart.yaml --set policy=none", ""}});
    o->pipeline.add_to(showing, ShortForms::none);
    showing.flag("--origins", o->origins, "Print where each value was set");
    showing.flag("--json", o->json, "Print a JSON object with the value and origin of each key");
    showing.action = [o] { return show(*o); };

    Command &checking =
        add_command(command, program, "check",
                    "Check the keys, plugins, parameters and model files of a pipeline, without "
                    "reading weights",
                    {{"keel config check my.yaml",
                      "exit code 0, or 2 with an error that names file, line and column"}});
    o->pipeline.add_to(checking, ShortForms::none);
    checking.flag("--json", o->json, "Print a JSON object");
    checking.action = [o] { return check(*o); };

    Command &writing = add_command(command, program, "init",
                                   "Write a pipeline file with comments that fits the free memory",
                                   {{"keel config init models/tiny -o my.yaml", ""},
                                    {"keel config init models/tiny | less", ""}});
    writing.argument("MODEL", o->model, "The folder of a model, or a GGUF file");
    writing.option("-o,--output FILE", o->output,
                   "The new file; never replaces an existing file (default: standard output)");
    writing
        .option("--backend NAME", o->backend,
                "The backend that computes; 'keel plugins list' shows all")
        .shows_default();
    writing.action = [o, &program] { return init(*o, program); };
}

} // namespace keel::cli
