#include "architecture_json.hpp"
#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/page/text_table.hpp"
#include "model/facts.hpp"
#include "model/model_tensors.hpp"
#include "model/tensor_check.hpp"
#include "run/fit.hpp"
#include "run/layer_split.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;
constexpr keel_dtype kv_dtypes[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                    KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};

struct InspectOptions {
    std::string model;
    bool verify = false, json = false, tensors = false;
};

// The facts about a model that are known without reading the model's weights.
struct Report {
    std::shared_ptr<const ModelSource> source;
    std::vector<std::string> unused; // tensors of the files that Keel does not use
    std::unique_ptr<Tokenizer> tokenizer;
    std::string tokenizer_error; // the reason if there is no tokenizer
    MemoryInfo memory;
    MemoryNeed need; // the memory of a run with the stored weights, an f16 cache and the full
                     // context
    std::map<std::string, TensorSum> by_dtype; // key: the name of the dtype in the files
};

Report make_report(const InspectOptions &o) {
    Report r;
    const std::filesystem::path folder = pipeline::model_folder(o.model);
    r.source = open_model_source(folder);
    r.unused = check_model_tensors(*r.source);
    try {
        r.tokenizer = load_tokenizer(folder);
    } catch (const Error &e) {
        r.tokenizer_error = e.what();
    }
    r.memory = memory_info();
    r.need = memory_need(*r.source, KEEL_DTYPE_NONE, KEEL_DTYPE_F16, KEEL_DTYPE_F16,
                         r.source->config().max_positions);
    r.by_dtype = sums_by_dtype(*r.source);
    return r;
}

bool fits(const Report &r) { return r.memory.total == 0 || r.need.total() <= r.memory.available; }

void add_architecture(Rows &rows, const Report &r) {
    const ModelConfig &m = r.source->config();
    rows.push_back(
        {"architecture", fmt::format("{}: {} layers, hidden {}, {}", m.architecture->name, m.layers,
                                     m.hidden_size, feed_forward_text(m))});
    const std::string window = window_text(m);
    rows.push_back(
        {"attention", fmt::format("{} heads of {} on {} key/value heads{}{}", m.heads, m.head_dim,
                                  m.kv_heads, window.empty() ? "" : ", ", window)});
    if (const auto facts = architecture_facts(m); !facts.empty())
        rows.push_back({"unlike Llama", fmt::format("{}", fmt::join(facts, ", "))});
    rows.push_back(
        {"parameters",
         fmt::format("{}{}", count_text(m.parameter_count()),
                     m.tied_embeddings ? " (input and output embedding are the same tensor)"
                                       : "")});
    if (m.experts.count > 0)
        rows.push_back({"", fmt::format("{} for each token, {} of weights",
                                        count_text(m.active_parameter_count()),
                                        format_bytes(r.need.weights_per_token))});
    rows.push_back({"context", fmt::format("{} tokens", m.max_positions)});
    rows.push_back({"rope", rope_text(m)});
}

void add_files(Rows &rows, const Report &r) {
    for (size_t i = 0; i < r.source->file_count(); ++i) {
        const MappedFile &file = r.source->file(i);
        rows.push_back({i == 0 ? "files" : "", fmt::format("{}, {}", printable(file.path(), 300),
                                                           format_bytes(file.size()))});
    }
    bool first = true;
    for (const auto &[dtype, sum] : r.by_dtype) {
        rows.push_back({first ? "tensors" : "",
                        fmt::format("{} of {}: {} values, {}", sum.tensors, printable(dtype, 20),
                                    sum.elements, format_bytes(sum.bytes))});
        first = false;
    }
    // No device was queried. So the rows list the conversions that all devices need, and the
    // conversions that only devices without the type need.
    for (const Conversion &c : r.source->conversions(KEEL_DTYPE_NONE, all_weight_dtypes))
        rows.push_back({"", conversion_text(c) + " when the model is loaded"});
    for (const Conversion &c : sometimes_converted(*r.source))
        rows.push_back(
            {"", "on a backend that does not support " + c.from + ", " + conversion_text(c)});
    if (!r.unused.empty())
        rows.push_back({"", fmt::format("{} of them are not used, for example {}", r.unused.size(),
                                        printable(r.unused.front(), 80))});
}

void add_tokenizer(Rows &rows, const Report &r) {
    if (!r.tokenizer) {
        rows.push_back({"tokenizer", "none: " + r.tokenizer_error});
        return;
    }
    const TokenizerInfo info = r.tokenizer->info();
    rows.push_back({"tokenizer", fmt::format("{}: {} tokens, {} merges, {} special, {} added",
                                             info.kind, info.ordinary_tokens, info.merges,
                                             info.special_tokens, info.added_tokens)});
    const std::optional<int32_t> bos = r.tokenizer->bos_id();
    std::string marks =
        !bos ? "no token begins a text" : fmt::format("a text begins with {}", *bos);
    if (bos && !r.tokenizer->adds_bos()) marks += " only if the text is empty";
    marks += r.tokenizer->end_ids().empty()
                 ? ", no token ends a text"
                 : fmt::format(", ends with {}", fmt::join(r.tokenizer->end_ids(), " or "));
    rows.push_back({"", marks});
}

void add_memory(Rows &rows, const Report &r) {
    const ModelConfig &m = r.source->config();
    bool first = true;
    for (const keel_dtype dtype : kv_dtypes) {
        const KvBytes bytes = kv_bytes(m, dtype, dtype, m.max_positions);
        rows.push_back(
            {first ? "KV cache" : "",
             m.head_dim % keel_dtype_block(dtype) != 0
                 ? fmt::format("{:<5} not possible: {} values per head do not fill whole blocks",
                               keel_dtype_name(dtype), m.head_dim)
                 : fmt::format("{:<5} {}, {} for {} tokens", keel_dtype_name(dtype),
                               kv_bytes_text(bytes), format_bytes(bytes.of(m.max_positions)),
                               m.max_positions)});
        first = false;
    }
    if (const std::string split = LayerSplit(m, m.max_positions).text(); !split.empty())
        rows.push_back({"", split});
    rows.push_back(
        {"memory", fmt::format("{}: weights {}, full f16 cache {}, work {}",
                               format_bytes(r.need.total()), format_bytes(r.need.weights),
                               format_bytes(r.need.cache), format_bytes(r.need.work))});
    if (r.memory.total == 0) return;
    std::string verdict =
        fmt::format("{} available ({}): ", format_bytes(r.memory.available), r.memory.limited_by);
    verdict += fits(r) ? "fits" : "does not fit; 'keel config init' chooses settings that fit";
    rows.push_back({"", verdict});
}

std::string tensor_lines(const ModelSource &source) {
    Rows rows;
    for (const TensorInfo &tensor : source.tensors())
        rows.push_back({printable(tensor.name), printable(tensor.dtype_name, 20),
                        shape_text(tensor.shape), format_bytes(tensor.bytes)});
    return left_table(rows);
}

// The number of layers that keep only the tokens of a window. null if the model has no such layer.
Json layer_split_json(const LayerSplit &split) {
    if (split.window() == 0) return nullptr;
    return {{"window", split.window()},
            {"windowed_layers", split.model_windowed()},
            {"policy_layers", split.of_model()}};
}

Json report_json(const Report &r, const InspectOptions &o) {
    const ModelConfig &m = r.source->config();
    Json json = {{"model", r.source->path()},
                 {"architecture", architecture_json(m)},
                 {"parameters", m.parameter_count()},
                 {"active_parameters", m.active_parameter_count()}};
    json["files"] = Json::array();
    for (size_t i = 0; i < r.source->file_count(); ++i)
        json["files"].push_back(
            {{"path", r.source->file(i).path()}, {"bytes", r.source->file(i).size()}});
    json["dtypes"] = Json::object();
    for (const auto &[dtype, sum] : r.by_dtype)
        json["dtypes"][dtype] = {
            {"tensors", sum.tensors}, {"elements", sum.elements}, {"bytes", sum.bytes}};
    json["converted_at_load"] = Json::array();
    json["converted_where_not_taken"] = Json::array();
    const auto add = [&](const char *where, const std::vector<Conversion> &conversions) {
        for (const Conversion &c : conversions)
            json[where].push_back({{"from", c.from},
                                   {"to", keel_dtype_name(c.to)},
                                   {"tensors", c.tensors},
                                   {"stored_bytes", c.stored_bytes},
                                   {"loaded_bytes", c.loaded_bytes}});
    };
    add("converted_at_load", r.source->conversions(KEEL_DTYPE_NONE, all_weight_dtypes));
    add("converted_where_not_taken", sometimes_converted(*r.source));
    json["unused_tensors"] = r.unused;
    if (r.tokenizer) {
        const TokenizerInfo info = r.tokenizer->info();
        json["tokenizer"] = {
            {"kind", info.kind},
            {"ordinary_tokens", info.ordinary_tokens},
            {"special_tokens", info.special_tokens},
            {"added_tokens", info.added_tokens},
            {"merges", info.merges},
            {"bos_id", r.tokenizer->bos_id() ? Json(*r.tokenizer->bos_id()) : Json(nullptr)},
            {"adds_bos", r.tokenizer->adds_bos()},
            {"end_ids", r.tokenizer->end_ids()}};
    } else {
        json["tokenizer"] = nullptr;
        json["tokenizer_error"] = r.tokenizer_error;
    }
    json["kv_bytes_per_token"] = Json::object();
    for (const keel_dtype dtype : kv_dtypes) {
        const KvBytes bytes = kv_bytes(m, dtype, dtype, m.max_positions);
        const bool is_possible = m.head_dim % keel_dtype_block(dtype) == 0;
        const char *name = keel_dtype_name(dtype);
        json["kv_bytes_per_token"][name] = is_possible ? Json(bytes.per_token) : Json(nullptr);
        json["kv_window_bytes"][name] = is_possible ? Json(bytes.window_bytes()) : Json(nullptr);
    }
    json["layer_windows"] = layer_split_json(LayerSplit(m, m.max_positions));
    json["memory"] = {{"needed_bytes", r.need.total()},
                      {"weights_bytes", r.need.weights},
                      {"weights_per_token_bytes", r.need.weights_per_token},
                      {"cache_bytes", r.need.cache},
                      {"work_bytes", r.need.work},
                      {"available_bytes", r.memory.available},
                      {"fits", fits(r)}};
    if (o.tensors) {
        json["tensors"] = Json::array();
        for (const TensorInfo &t : r.source->tensors())
            json["tensors"].push_back({{"name", t.name},
                                       {"dtype", t.dtype_name},
                                       {"shape", t.shape},
                                       {"bytes", t.bytes},
                                       {"file", r.source->file(t).path()},
                                       {"offset", t.offset}});
    }
    return json;
}

struct Verification {
    std::vector<BadTensor> bad;
    double seconds = 0;
};

// Reads every weight, with all processors. Throws Interrupted after a Ctrl-C. Throws Error(input)
// for a tensor with a dtype that Keel does not support.
Verification verify_weights(const ModelSource &source) {
    const auto start = std::chrono::steady_clock::now();
    HostServices host;
    const InterruptGuard guard(host);
    struct Job {
        WeightsCheck check;
        uint64_t total;
        void work() {
            check.work([this](uint64_t bytes) {
                console().progress("reading", bytes, total, Console::Unit::bytes);
                return !interrupted();
            });
        }
    } job{WeightsCheck(source), source.total_bytes()};
    console().progress("reading", 0, job.total, Console::Unit::bytes);
    const auto body = [](void *user, const ThreadTeam::Region &) {
        static_cast<Job *>(user)->work();
    };
    if (host.team().run(0, body, &job) != ThreadTeam::Result::done) job.work();
    console().clear_progress();
    check_interrupt();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    return {job.check.result(), passed.count()};
}

Json verify_json(const Verification &v, const ModelSource &source) {
    Json bad = Json::array();
    for (const BadTensor &tensor : v.bad)
        bad.push_back({{"tensor", tensor.name},
                       {"file", tensor.file},
                       {"not_finite", tensor.not_finite},
                       {"first_index", tensor.first_index}});
    return {{"ok", v.bad.empty()},
            {"tensors", source.tensors().size()},
            {"bytes", source.total_bytes()},
            {"seconds", v.seconds},
            {"bad", std::move(bad)}};
}

// Prints an error line for each damaged tensor, but at most ten.
void report_bad(const Verification &v) {
    constexpr size_t shown = 10;
    for (size_t i = 0; i < v.bad.size() && i < shown; ++i) {
        const BadTensor &t = v.bad[i];
        console().message("keel: error: ",
                          fmt::format("{}: tensor '{}': {} of {} values are not finite (the first "
                                      "at [{}]); download the file again",
                                      printable(t.file, 300), printable(t.name), t.not_finite,
                                      t.elements, fmt::join(t.first_index, ", ")),
                          31);
    }
    if (v.bad.size() > shown)
        console().message("keel: error: ", fmt::format("and {} more tensors", v.bad.size() - shown),
                          31);
}

int inspect(const InspectOptions &o) {
    const Report r = make_report(o);
    Json json = o.json ? report_json(r, o) : Json();
    if (!o.json) {
        Rows rows;
        add_architecture(rows, r);
        add_files(rows, r);
        add_tokenizer(rows, r);
        add_memory(rows, r);
        console().out(printable(r.source->path(), 300) + "\n" + left_table(rows, "  "));
        if (o.tensors) console().out("\n" + tensor_lines(*r.source));
    }
    if (!o.verify) {
        if (o.json) print_json(json);
        return 0;
    }
    const Verification v = verify_weights(*r.source);
    if (o.json) {
        json["verify"] = verify_json(v, *r.source);
        print_json(json);
    } else if (v.bad.empty()) {
        console().out(fmt::format(
            "  verified: all values of {} tensors ({}) are finite; {:.1f} s\n",
            r.source->tensors().size(), format_bytes(r.source->total_bytes()), v.seconds));
    }
    report_bad(v);
    return v.bad.empty() ? 0 : 1;
}

} // namespace

void add_inspect(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "inspect", "Show a model's sizes and memory, and check its files",
        {{"keel inspect models/tiny", ""},
         {"keel inspect models/tiny --verify",
          "reads every weight; exit code 1 if one is not finite"},
         {"keel inspect models/tiny --json | jq .kv_bytes_per_token.f16", ""}});
    auto o = std::make_shared<InspectOptions>();
    command.argument("MODEL", o->model, "The folder of a model, or a GGUF file");
    command.flag("--verify", o->verify, "Read every weight and check that all values are finite");
    command.flag("--tensors", o->tensors, "List all tensors with name, type, shape and size");
    command.flag("--json", o->json, "Print a JSON object");
    command.action = [o] { return inspect(*o); };
}

} // namespace keel::cli
