// keel_policy_check PLUGIN checks whether a policy or a budget allocator does what the headers
// require. It calls the functions of the plugin's table as a host would.
#include "base/error.hpp"
#include "policy_check/check.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>

namespace {

using namespace keel;
using namespace keel::policy_check;

struct Request {
    std::string plugin;
    std::vector<std::string> params, models;
    uint64_t seed = 1;
    size_t messages = 10;
};

std::vector<GivenParam> given_params(const Request &request) {
    std::vector<GivenParam> given;
    for (const std::string &text : request.params) {
        const size_t equals = text.find('=');
        if (equals == std::string::npos)
            throw_error(ErrorKind::usage, "--param {}: expected KEY=VALUE", text);
        given.push_back(
            {text.substr(0, equals), text.substr(equals + 1), GivenParam::Form::plain, {}, {}});
    }
    return given;
}

std::vector<Model> models_of(const Request &request) {
    std::vector<Model> models;
    for (const std::string &text : request.models) {
        Model m = {};
        char end = 0;
        const int n = std::sscanf(text.c_str(), "%u,%u,%u,%u%c", &m.layers, &m.heads, &m.kv_heads,
                                  &m.head_dim, &end);
        const auto within = [](uint32_t x, uint32_t most) { return x >= 1 && x <= most; };
        if (n != 4 || !within(m.layers, 256) || !within(m.heads, 256) || !within(m.kv_heads, 256) ||
            !within(m.head_dim, 512) || m.heads % m.kv_heads != 0) {
            throw_error(
                ErrorKind::usage,
                "--model {}: expected LAYERS,HEADS,KV_HEADS,HEAD_DIM, heads a multiple of KV heads",
                text);
        }
        models.push_back(m);
    }
    return models.empty() ? usual_models() : models;
}

int check(const Request &request) {
    const PluginLibrary library(std::filesystem::absolute(request.plugin),
                                {"the command line", 0, 0});
    if (library.kind() == KEEL_PLUGIN_BACKEND)
        throw_error(ErrorKind::usage, "{} is a backend; keel_conformance checks those",
                    request.plugin);
    const ParamValues params =
        library.params().bind(given_params(request), {"the command line", 0, 0});
    const bool policy = library.kind() == KEEL_PLUGIN_POLICY;
    const Report report = policy
                              ? check_policy(library, params, models_of(request), request.seed)
                              : check_allocator(library, params, models_of(request), request.seed);
    for (size_t i = 0; i < std::min(request.messages, report.failures.size()); ++i)
        std::printf("%s\n", report.failures[i].c_str());
    if (report.failures.size() > request.messages)
        std::printf("... and %zu more\n", report.failures.size() - request.messages);
    std::printf("%s %s: %lld checks, %lld calls refused, %zu failures: %s\n",
                library.name().c_str(), library.version().c_str(),
                static_cast<long long>(report.checks), static_cast<long long>(report.refused),
                report.failures.size(), report.failures.empty() ? "conforms" : "does not conform");
    return report.failures.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    Request request;
    CLI::App app(
        "Checks a policy or a budget allocator against keel/policy.h and keel/allocator.h. Exit: 0 "
        "conforms, 1 does not, 2 wrong use "
        "or not loadable.");
    app.add_option("PLUGIN", request.plugin, "path of the shared library")->required();
    app.add_option("--param", request.params,
                   "KEY=VALUE: a parameter of the plugin (may be repeated)");
    app.add_option(
        "--model", request.models,
        "LAYERS,HEADS,KV_HEADS,HEAD_DIM: a model to check it with, instead of five usual ones");
    app.add_option("--seed", request.seed, "seed of the made-up inputs and of the policy");
    app.add_option("--messages", request.messages, "failures shown");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        return check(request);
    } catch (const Error &error) {
        std::fprintf(stderr, "keel_policy_check: %s\n", error.what());
        return 2;
    }
}
