#include "eval/bench/matrix/measure.hpp"

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/log.hpp"
#include "eval/bench/matrix/child_process.hpp"
#include "platform/clock.hpp"
#include "platform/machine.hpp"
#include "platform/new_file.hpp"
#include "platform/paths.hpp"
#include "run/pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Returns the size and the modification time of a file, or of each file in a folder. So files with
// changed weights count as another model, even if the names of the files are the same.
std::string stamp_of(const fs::path &path) {
    std::error_code error;
    std::vector<fs::path> files{path};
    if (fs::is_directory(path, error)) {
        files.clear();
        for (const auto &entry : fs::directory_iterator(path, error)) {
            if (entry.is_regular_file(error)) files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
    }
    std::string stamp;
    for (const fs::path &file : files) {
        const auto size = fs::file_size(file, error);
        const auto time = fs::last_write_time(file, error).time_since_epoch().count();
        stamp += fmt::format("\n{} {} {}", file.filename().string(), size, time);
    }
    return stamp;
}

// Identifies a build without a commit. A rebuild changes the files of the program and the plugins,
// so the text describes these files.
std::string build_stamp(const MatrixProgram &program) {
    const std::string &commit = program.commit;
    if (!commit.empty() && !commit.ends_with("-dirty")) return {};
    return stamp_of(program.path) +
           stamp_of(program.path.parent_path().parent_path() / "lib" / "keel" / "plugins");
}

std::vector<std::string> arguments_of(const MatrixRun &run, const BenchMatrix &matrix) {
    std::vector<std::string> out{"bench", run.path.string()};
    for (const std::string &set : run.sets) {
        out.emplace_back("--set");
        out.push_back(set);
    }
    const std::string length = std::to_string(run.length);
    for (const std::string &word :
         {std::string("--prefill"), length, std::string("--depth"), length, std::string("--decode"),
          std::to_string(matrix.decode), std::string("--repeat"), std::to_string(matrix.repeat)})
        out.push_back(word);
    if (matrix.sequences != std::vector<int64_t>{1}) {
        out.emplace_back("--batch");
        out.push_back(fmt::format("{}", fmt::join(matrix.sequences, ",")));
    }
    if (matrix.probe_mib) {
        out.emplace_back("--probe-mib");
        out.push_back(std::to_string(*matrix.probe_mib));
    }
    out.emplace_back("--no-ops");
    out.emplace_back("--json");
    out.emplace_back("-q");
    return out;
}

Json run_json(const MatrixRun &run, const std::string &key,
              const std::vector<std::string> &arguments, const MatrixProgram &program,
              Json result) {
    Json command = Json::array({"keel"});
    for (const std::string &argument : arguments) command.push_back(argument);
    Json axes = {
        {"model", run.model}, {"backend", run.backend}, {"kv", run.cache}, {"policy", run.policy}};
    if (!run.sync.empty()) axes["sync"] = run.sync;
    axes["length"] = run.length;
    return {{"format", "keel-bench-run/1"},
            {"key", key},
            {"name", run.name()},
            {"axes", std::move(axes)},
            {"version", program.version},
            {"commit", program.commit.empty() ? Json(nullptr) : Json(program.commit)},
            {"date", utc_text(std::chrono::system_clock::now())},
            {"command", std::move(command)},
            {"result", std::move(result)}};
}

constexpr uint64_t largest_result = uint64_t{8} << 20;
constexpr JsonLimits result_limits = {.bytes = largest_result};

// True if the file is the result with this key. For a damaged file, prints a warning with the
// reason and returns false.
bool is_result_of(const fs::path &file, const std::string &key) {
    try {
        const std::string text = read_text_file(file, largest_result);
        const JsonDocument document(text, file.string(), result_limits);
        const JsonNode json = document.object();
        const auto found = json.find("key");
        return found && found->is_text() && found->text() == key && json.has("result");
    } catch (const Error &error) {
        log().warn("{}; the run is measured again", error.what());
        return false;
    }
}

} // namespace

MatrixMeasurement::MatrixMeasurement(const BenchMatrix &matrix, fs::path folder,
                                     MatrixProgram program)
    : matrix_(matrix), folder_(std::move(folder)), program_(std::move(program)),
      circumstances_(
          fmt::format("{} {} {}", program_.version, program_.commit, machine_info().cpu) +
          build_stamp(program_)) {}

void MatrixMeasurement::check(const std::vector<MatrixRun> &runs) const {
    // For each model with settings: the longest sequence that the pipeline can hold. nullopt if the
    // policy evicts to make room.
    std::map<std::pair<fs::path, std::vector<std::string>>, std::optional<int64_t>> contexts;
    for (const MatrixRun &run : runs) {
        const auto key = std::pair(run.path, run.sets);
        std::string too_long;
        try {
            if (!contexts.contains(key)) {
                PipelineOptions options;
                options.check_only = true;
                options.need_tokenizer = false;
                options.batch = static_cast<uint32_t>(
                    *std::max_element(matrix_.sequences.begin(), matrix_.sequences.end()));
                const Pipeline pipeline(program_.load(run.path, run.sets), options);
                contexts[key] = pipeline.policy_setup().keeps_all()
                                    ? std::optional(pipeline.context())
                                    : std::nullopt;
            }
            const std::optional<int64_t> context = contexts[key];
            if (context && run.length + matrix_.decode > *context) {
                too_long = fmt::format("{}: {}: a prompt of {} tokens and {} decoded tokens "
                                       "do not fit model.context = {}",
                                       to_string(run.length_where), run.name(), run.length,
                                       matrix_.decode, *context);
            }
        } catch (const Error &e) {
            throw Error(e.kind(), run.fault(e));
        }
        if (!too_long.empty()) throw Error(ErrorKind::input, too_long);
    }
}

std::string MatrixMeasurement::key_of(const MatrixRun &run) const {
    return run.key(matrix_, circumstances_ + stamp_of(run.path));
}

bool MatrixMeasurement::is_done(const MatrixRun &run) const {
    const std::string key = key_of(run);
    const fs::path file = folder_ / run.file_name(key);
    std::error_code error;
    return fs::is_regular_file(file, error) && is_result_of(file, key);
}

int MatrixMeasurement::measure(const MatrixRun &run) const {
    const std::vector<std::string> arguments = arguments_of(run, matrix_);
    const ChildResult child = run_child(program_.path, arguments, program_.interrupted);
    if (child.code != 0) return child.code;
    try {
        JsonDocument(child.out, "output of keel bench", result_limits).object();
    } catch (const Error &error) {
        log().warn("{}: {}", run.name(), error.what());
        return -1;
    }
    // JsonDocument sorts the members of objects. This parser keeps the order that `keel bench
    // --json` writes.
    Json result = Json::parse(child.out);
    const std::string key = key_of(run);
    const Json json = run_json(run, key, arguments, program_, std::move(result));
    write_whole_file(folder_ / run.file_name(key),
                     json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return 0;
}

} // namespace keel
