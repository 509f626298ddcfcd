#include "console.hpp"
#include "plugin_facts.hpp"
#include "program.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/page/text_table.hpp"
#include "platform/paths.hpp"
#include "plugin/registry.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct PluginsOptions {
    bool json = false;
    std::string name;
};

// A file in a plugin folder, with the result of loading it.
struct Listed {
    PluginFile file;
    const PluginLibrary *library = nullptr;
    std::string problem;
};

std::vector<Listed> load_all(PluginRegistry &registry) {
    std::vector<Listed> all;
    for (const PluginFile &file : registry.list()) {
        Listed one{file, nullptr, {}};
        try {
            if (!file.shadowed) one.library = &registry.get(file.name, {"keel plugins", 0, 0});
        } catch (const Error &e) {
            one.problem = e.what();
        }
        all.push_back(std::move(one));
    }
    return all;
}

Json listed_json(const Listed &one) {
    Json json = {{"name", one.file.name},
                 {"path", one.file.path.string()},
                 {"usable", one.library != nullptr}};
    if (one.file.shadowed)
        json["problem"] = "a plugin with this name in an earlier folder is used instead";
    if (!one.problem.empty()) json["problem"] = one.problem;
    if (one.library != nullptr) {
        json["kind"] = kind_name(one.library->kind());
        json["version"] = one.library->version();
        json["abi"] = abi_text(one.library->abi_version());
        json["doc"] = one.library->doc();
    }
    return json;
}

int list(const PluginsOptions &o) {
    PluginRegistry &registry = PluginRegistry::process();
    const std::vector<Listed> all = load_all(registry);
    if (o.json) {
        Json json = {{"folders", Json::array()}, {"plugins", Json::array()}};
        for (const auto &folder : registry.folders()) json["folders"].push_back(folder.string());
        for (const Listed &one : all) json["plugins"].push_back(listed_json(one));
        print_json(json);
        return 0;
    }
    Rows rows = {{"NAME", "KIND", "VERSION", "DESCRIPTION"}};
    for (const Listed &one : all) {
        if (one.library != nullptr) {
            rows.push_back({one.file.name, kind_name(one.library->kind()), one.library->version(),
                            one.library->doc()});
            rows.push_back({"", "", "", one.file.path.string()});
        }
    }
    rows.push_back(
        {"reference", "backend", "",
         "Keel's own simple code: slow, for comparison and as the last fallback (built in)"});
    console().out(left_table(rows));
    for (const Listed &one : all) {
        if (one.file.shadowed)
            console().out(fmt::format("\nnot used: {}: another {} is found first\n",
                                      one.file.path.string(), one.file.name));
        if (!one.problem.empty()) console().out(fmt::format("\nbroken: {}\n", one.problem));
    }
    if (all.empty()) {
        std::vector<std::string> folders;
        for (const auto &folder : registry.folders()) folders.push_back(folder.string());
        console().message("keel: ",
                          fmt::format("found no plugins in {}", fmt::join(folders, ", ")));
    }
    return 0;
}

// Returns facts that only a running plugin can tell. If the plugin reports an error, returns
// nullopt and sets the error text.
template <typename Facts>
std::optional<Facts> ask(Facts (*question)(const PluginLibrary &), const PluginLibrary &library,
                         std::string &problem) {
    try {
        return question(library);
    } catch (const Error &e) {
        problem = e.what();
        return std::nullopt;
    }
}

Json show_json(const PluginLibrary &p) {
    Json json = {{"name", p.id()},          {"kind", kind_name(p.kind())},
                 {"version", p.version()},  {"abi", abi_text(p.abi_version())},
                 {"vendor", p.vendor()},    {"license", p.license()},
                 {"build", p.build_info()}, {"path", p.path().string()},
                 {"doc", p.doc()},          {"params", Json::array()}};
    for (const ParamSpec &spec : p.params().specs())
        json["params"].push_back(
            {{"key", spec.key},
             {"expects", spec.expects()},
             {"required", spec.required},
             {"default", spec.required ? Json(nullptr) : Json(spec.default_text)},
             {"doc", spec.doc}});
    std::string problem;
    if (p.kind() == KEEL_PLUGIN_BACKEND) {
        if (const auto devices = ask(backend_devices, p, problem)) {
            json["devices"] = Json::array();
            for (const DeviceFacts &d : *devices)
                json["devices"].push_back({{"name", d.name},
                                           {"vendor", d.vendor},
                                           {"driver", d.driver},
                                           {"type", d.type},
                                           {"total_bytes", d.total_bytes}});
        }
    } else if (p.kind() == KEEL_PLUGIN_POLICY) {
        if (const auto facts = ask(policy_facts, p, problem)) {
            json["granularity"] = facts->granularity;
            json["answers_with"] = facts->output;
            json["needs"] = facts->needs;
            json["traits"] = facts->traits;
            json["window"] = facts->window;
            json["own_budget"] = facts->own_budget;
        }
    }
    if (!problem.empty()) json["problem"] = problem;
    return json;
}

void show_params(const PluginLibrary &p) {
    if (p.params().specs().empty()) {
        console().out("\nNo parameters.\n");
        return;
    }
    Rows rows = {{"PARAMETER", "VALUE", "DEFAULT", "MEANING"}};
    for (const ParamSpec &spec : p.params().specs())
        rows.push_back(
            {spec.key, spec.expects(), spec.required ? "(required)" : spec.default_text, spec.doc});
    const char *section = p.kind() == KEEL_PLUGIN_BACKEND  ? "backend"
                          : p.kind() == KEEL_PLUGIN_POLICY ? "policy"
                                                           : "policy.allocator";
    console().out("\n" + left_table(rows));
    const std::string key = p.params().specs().front().key;
    console().out(
        fmt::format("\nIn a pipeline: {0}: {{plugin: {1}, params: {{{2}: ...}}}}; on the command "
                    "line: --set {0}.params.{2}=...\n",
                    section, p.id(), key));
}

void show_devices(const PluginLibrary &p) {
    std::string problem;
    const auto devices = ask(backend_devices, p, problem);
    if (!devices) {
        console().out(fmt::format("\nDevices: {}\n", problem));
        return;
    }
    Rows rows = {{"DEVICE", "TYPE", "NAME", "MEMORY", "DRIVER"}};
    for (size_t i = 0; i < devices->size(); ++i) {
        const DeviceFacts &d = (*devices)[i];
        rows.push_back({std::to_string(i), d.type, d.name,
                        d.total_bytes == 0 ? "" : format_bytes(d.total_bytes), d.driver});
    }
    console().out(devices->empty() ? "\nNo devices.\n" : "\n" + left_table(rows));
}

void show_policy(const PluginLibrary &p) {
    std::string problem;
    const auto facts = ask(policy_facts, p, problem);
    if (!facts) {
        console().out(fmt::format("\nNeeds: {}\n", problem));
        return;
    }
    Rows rows = {{"granularity", facts->granularity},
                 {"output", facts->output},
                 {"needs", facts->needs.empty()
                               ? "only the lengths"
                               : fmt::format("{}", fmt::join(facts->needs, ", "))}};
    for (size_t i = 0; i < facts->traits.size(); ++i)
        rows.push_back({i == 0 ? "traits" : "", facts->traits[i]});
    if (facts->window != 0)
        rows.push_back({"window", fmt::format("the last {} queries", facts->window)});
    if (facts->own_budget != 0)
        rows.push_back({"own budget", fmt::format("{} tokens, if the pipeline has no budget",
                                                  facts->own_budget)});
    console().out("\n" + left_table(rows));
}

int show(const PluginsOptions &o) {
    const PluginLibrary &p = PluginRegistry::process().get(o.name, {"keel plugins show", 0, 0});
    if (o.json) {
        print_json(show_json(p));
        return 0;
    }
    console().out(fmt::format("{} {}\n{}\n\n", p.name(), p.version(), p.doc()));
    Rows rows = {{"path", p.path().string()},
                 {"vendor", p.vendor()},
                 {"license", p.license()},
                 {"ABI", abi_text(p.abi_version())},
                 {"build", p.build_info()}};
    std::erase_if(rows, [](const auto &row) { return row[1].empty(); });
    console().out(left_table(rows));
    if (p.kind() == KEEL_PLUGIN_BACKEND) show_devices(p);
    if (p.kind() == KEEL_PLUGIN_POLICY) show_policy(p);
    show_params(p);
    return 0;
}

} // namespace

void add_plugins(Command &keel, Program &program) {
    Command &command = keel.add_command(
        "plugins", "List backends, policies and allocators, with their parameters");
    command.footer =
        "Keel looks for plugins in the folders of KEEL_PLUGIN_PATH, then in ../lib/keel/plugins "
        "relative to the program's folder.";
    auto o = std::make_shared<PluginsOptions>();
    Command &listing = add_command(
        command, program, "list", "List all plugins; for a broken plugin, show the reason",
        {{"keel plugins list", ""},
         {"KEEL_PLUGIN_PATH=$PWD/build keel plugins list", "also lists your own plugins"}});
    listing.flag("--json", o->json, "Print a JSON object");
    listing.action = [o] { return list(*o); };
    Command &showing =
        add_command(command, program, "show", "Show the parameters, devices and needs of a plugin",
                    {{"keel plugins show sliding_window", ""},
                     {"keel plugins show ./my_policy.so", "shows a plugin by its file"}});
    showing.argument("NAME", o->name, "A plugin's name, or the path of its library");
    showing.flag("--json", o->json, "Print a JSON object");
    showing.action = [o] {
        PluginsOptions absolute = *o;
        if (is_plugin_path(o->name)) absolute.name = absolute_path(o->name).string();
        return show(absolute);
    };
}

} // namespace keel::cli
