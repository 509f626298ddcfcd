// keel_conformance PLUGIN checks whether a backend does what the headers require. It compares each
// op with the core's reference backend, within the error bounds of the op headers. It also tests
// the rest of the interface: invalid calls, older and newer peers, threads, leaks.
#include "conformance/attention_dense.hpp"
#include "conformance/batched_decode.hpp"
#include "conformance/protocol.hpp"
#include "conformance/suite.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using namespace keel::conformance;

constexpr const char *usage = R"(usage: keel_conformance PLUGIN [options]
  PLUGIN               path of a backend's shared library, or 'reference'
  --param KEY=VALUE    a parameter of the plugin (may be repeated)
  --op NAME            only this op; 'protocol': only the border; 'attention_dense' or
                       'batched_decode': only that extension
  --case N             only case N of each op
  --seed S             seed of the data (default 1)
  --quick              fewer sizes and layouts
  --complete           UNSUPPORTED is a failure, but for odd strides and alignments
  --lacks OP           with --complete: the backend may lack this op (may be repeated)
  --messages N         failures shown per op (default 5)
  --list               the ops and whether the backend has them
exit: 0 conforms, 1 does not, 2 wrong use or not loadable, 77 this machine lacks what was asked for
)";

struct Request {
    std::string plugin;
    Params params;
    Options options;
    std::vector<keel_op> lacks; // ops that may be missing if options.complete is set
    bool list = false;
};

Request parse(int argc, char **argv) {
    Request request;
    request.options.quick = false;
    for (int i = 1; i < argc; ++i) {
        const std::string flag = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) throw Unusable{flag + " needs a value"};
            return argv[++i];
        };
        if (flag == "--param") {
            const std::string text = value();
            const size_t equals = text.find('=');
            if (equals == std::string::npos) throw Unusable{"--param needs KEY=VALUE"};
            request.params[text.substr(0, equals)] = text.substr(equals + 1);
        } else if (flag == "--op") {
            request.options.only_op = value();
        } else if (flag == "--case") {
            request.options.only_case = std::atoll(value().c_str());
        } else if (flag == "--seed") {
            request.options.seed = std::strtoull(value().c_str(), nullptr, 10);
        } else if (flag == "--messages") {
            request.options.max_messages = std::atoi(value().c_str());
        } else if (flag == "--quick") {
            request.options.quick = true;
        } else if (flag == "--complete") {
            request.options.complete = true;
        } else if (flag == "--lacks") {
            const std::string name = value();
            request.lacks.push_back(op_named(name));
            if (request.lacks.back() == 0) throw Unusable{"there is no op '" + name + "'"};
        } else if (flag == "--list") {
            request.list = true;
        } else if (flag.rfind("--", 0) == 0 || !request.plugin.empty()) {
            throw Unusable{"unknown argument " + flag};
        } else {
            request.plugin = flag;
        }
    }
    const std::string &op = request.options.only_op;
    if (!op.empty() && op != "protocol" && op != "attention_dense" && op != "batched_decode" &&
        op_named(op) == 0)
        throw Unusable{"there is no op '" + op + "'"};
    if (request.plugin.empty()) throw Unusable{"no plugin is named"};
    return request;
}

// Prints one line for each op. Returns the number of failures.
int64_t print(const char *name, const Report &report) {
    std::printf("%-17s %5lld cases %4lld refused  worst %8.3g of bound  %s  [%s]\n", name,
                static_cast<long long>(report.cases), static_cast<long long>(report.refused),
                report.worst, report.failures == 0 ? "ok  " : "FAIL", report.kernels.c_str());
    for (const std::string &message : report.messages) std::printf("    %s\n", message.c_str());
    const auto shown = static_cast<int64_t>(report.messages.size());
    if (report.failures > shown)
        std::printf("    ... and %lld more\n", static_cast<long long>(report.failures - shown));
    std::fflush(stdout);
    return report.failures;
}

int test(const Request &request) {
    const Library library(request.plugin);
    const Library reference("reference");
    Side oracle(reference, {});
    int64_t failures = 0;
    {
        Side subject(library, request.params);
        std::printf("%s %s: %s\n", library.plugin().id, library.plugin().version,
                    subject.info().description);
        for (keel_op op = 1; op <= last_op; ++op) {
            if (request.list) {
                std::printf("%-17s %s\n", op_name(op), has_op(library.table(), op) ? "yes" : "no");
                continue;
            }
            if (!request.options.only_op.empty() && request.options.only_op != op_name(op))
                continue;
            if (!has_op(library.table(), op)) {
                std::printf("%-17s not there: the core falls back\n", op_name(op));
                const auto &lacks = request.lacks;
                const bool may_lack = std::find(lacks.begin(), lacks.end(), op) != lacks.end();
                failures += request.options.complete && !may_lack ? 1 : 0;
                continue;
            }
            Suite suite(subject, oracle, request.options);
            cases_of(suite, op);
            failures += print(op_name(op), suite.report());
        }
    }
    const auto wants = [&](const char *part) {
        return !request.list &&
               (request.options.only_op.empty() || request.options.only_op == part);
    };
    if (wants("batched_decode")) {
        Side subject(library, request.params);
        const Report report = check_batched_decode(library, subject, request.options);
        if (report.cases + report.failures > 0) failures += print("batched_decode", report);
    }
    if (wants("attention_dense")) {
        const Report report = check_attention_dense(library, request.params, request.options);
        if (report.cases + report.failures > 0) failures += print("attention_dense", report);
    }
    if (wants("protocol")) {
        failures += print("protocol", check_protocol(library, request.params, request.options));
    }
    if (request.list) return 0;
    std::printf("%s\n", failures == 0 ? "conforms" : "does not conform");
    return failures == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    try {
        if (argc > 1 && std::strcmp(argv[1], "--help") == 0) {
            std::fputs(usage, stdout);
            return 0;
        }
        return test(parse(argc, argv));
    } catch (const Unusable &unusable) {
        std::fprintf(stderr, "%s%s\n",
                     unusable.not_here ? "skipped: " : "error: ", unusable.why.c_str());
        if (!unusable.not_here) std::fputs(usage, stderr);
        return unusable.not_here ? 77 : 2;
    }
}
