#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "text_input.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "convert/gguf_export.hpp"
#include "eval/page/text_table.hpp"
#include "eval/scoring/perplexity.hpp"
#include "plugin/parallel.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct QuantizeOptions {
    std::string model, to, type = "q8_0", text;
    bool force = false, json = false;
};

// Returns the type of the matrices to write.
keel_dtype type_of(const QuantizeOptions &o) {
    const std::string &name = o.type;
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        if (name == keel_dtype_name(type)) return type;
    }
    throw_error(ErrorKind::usage, "--type: expected f32, f16, bf16, q8_0 or q4_0, found '{}'",
                printable(name));
}

void show_quantizing(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const std::string_view what(stage);
    console().progress(stage, done, total,
                       what == "loading" || what == "writing" ? Console::Unit::bytes
                                                              : Console::Unit::tokens);
}

// The perplexities of both models on the same text, compared token by token.
struct Comparison {
    PerplexityReport before, after;
    Estimate difference; // in nats per token; the tokens are compared in pairs, so that the
                         // variation of the text has no effect
};

PerplexityReport measure(const std::string &model, const std::string &text,
                         const std::shared_ptr<HostServices> &host) {
    const pipeline::PipelineConfig config = pipeline::config_for_target(model, {});
    PipelineOptions options;
    options.host = host;
    options.progress = show_quantizing;
    options.max_logit_rows = scoring_rows(open_model(config.model)->config().vocab_size);
    Pipeline pipeline(config, options);
    ScoringOptions scoring;
    scoring.progress = show_quantizing;
    return measure_perplexity(pipeline, text, scoring);
}

Comparison compare(const QuantizeOptions &o, const std::string &text,
                   const std::shared_ptr<HostServices> &host) {
    Comparison c{measure(o.model, text, host), measure(o.to, text, host), {}};
    const std::vector<double> &before = c.before.token_nll, &after = c.after.token_nll;
    if (before.size() != after.size()) {
        throw_error(ErrorKind::runtime,
                    "{} and {} split the text into different tokens ({} and {} tokens scored); use "
                    "another text",
                    printable(o.model), printable(o.to), before.size(), after.size());
    }
    std::vector<double> differences;
    std::vector<ScoreWindow> windows;
    for (size_t i = 0; i < before.size(); ++i) differences.push_back(after[i] - before[i]);
    for (const PerplexityWindow &window : c.before.windows) windows.push_back(window.where);
    c.difference = estimate(differences, score_blocks(c.before.options, windows));
    return c;
}

std::string error_table(const ExportReport &report) {
    std::vector<std::vector<std::string>> rows{
        {"tensor", "from", "to", "rmse", "relative", "largest"}};
    for (const TensorError &t : report.tensors) {
        const bool exact = t.max_abs == 0;
        rows.push_back({printable(t.name), t.from, t.to,
                        exact ? "exact" : fmt::format("{:.2e}", t.rmse),
                        exact ? "" : fmt::format("{:.3f}%", 100 * t.relative()),
                        exact ? "" : fmt::format("{:.2e}", t.max_abs)});
    }
    return left_table(rows, "  ");
}

std::string error_of(const std::optional<double> &error) {
    return error ? fmt::format(" ± {:.4f}", *error) : "";
}

std::string comparison_text(const Comparison &c) {
    const double before = c.before.perplexity(), after = c.after.perplexity();
    return fmt::format(
        "  perplexity {:.4f}{}, before {:.4f}{}: {:+.2f}%, {:+.5f}{} nats per token\n", after,
        error_of(c.after.perplexity_error()), before, error_of(c.before.perplexity_error()),
        100 * (after / before - 1), c.difference.mean, error_of(c.difference.error));
}

Json tensor_json(const TensorError &t) {
    return {{"name", t.name},
            {"from", t.from},
            {"to", t.to},
            {"elements", t.elements},
            {"stored_bytes", t.stored_bytes},
            {"written_bytes", t.written_bytes},
            {"rmse", t.rmse},
            {"relative", t.relative()},
            {"max_abs", t.max_abs}};
}

Json report_json(const QuantizeOptions &o, const ExportReport &report, double seconds) {
    Json json = {{"model", o.model},
                 {"file", o.to},
                 {"type", o.type},
                 {"stored_bytes", report.stored_bytes},
                 {"file_bytes", report.file_bytes},
                 {"rmse", report.rmse()},
                 {"relative", report.relative()},
                 {"seconds", seconds},
                 {"left_out", report.left_out}};
    json["tensors"] = Json::array();
    for (const TensorError &t : report.tensors) json["tensors"].push_back(tensor_json(t));
    return json;
}

void say_fallbacks(const ExportReport &report, keel_dtype type) {
    for (const TensorError &t : report.tensors) {
        if (t.to == "F16" && type != KEEL_DTYPE_F16)
            log().warn("tensor '{}' is written as f16, because its rows are not a multiple of the "
                       "32 values in a {} block",
                       t.name, keel_dtype_name(type));
    }
    if (!report.left_out.empty())
        log().warn(
            "{} tensors are not written, because the model does not use them, for example {}",
            report.left_out.size(), printable(report.left_out.front()));
}

int quantize(const QuantizeOptions &o) {
    const auto start = std::chrono::steady_clock::now();
    const std::filesystem::path model = pipeline::model_folder(o.model);
    const std::string text =
        // the text is read now, so that an error comes before the conversion
        o.text.empty() ? std::string() : read_scored_text(o.text);
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    const auto source = open_model_source(model);
    ExportOptions options;
    options.type = type_of(o);
    options.overwrite = o.force;
    options.parallel = parallel_on(*host);
    options.progress = [](uint64_t done, uint64_t total) {
        show_quantizing("writing", done, total);
    };
    const ExportReport report = export_gguf(*source, o.to, options);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    console().clear_progress();
    say_fallbacks(report, options.type);
    if (!o.json) {
        console().out(error_table(report));
        console().out(
            fmt::format("{}: {} from {} in {:.1f} s; relative error of all values {:.3f}%\n",
                        printable(o.to, 300), format_bytes(report.file_bytes),
                        format_bytes(report.stored_bytes), seconds, 100 * report.relative()));
    }
    Json json = report_json(o, report, seconds);
    if (!o.text.empty()) {
        const Comparison c = compare(o, text, host);
        console().clear_progress();
        if (!o.json) console().out(comparison_text(c));
        json["perplexity"] = {{"text", o.text},
                              {"before", c.before.perplexity()},
                              {"after", c.after.perplexity()},
                              {"nats_difference", c.difference.mean},
                              {"nats_difference_error",
                               c.difference.error ? Json(*c.difference.error) : Json(nullptr)}};
    }
    if (o.json) print_json(json);
    return 0;
}

} // namespace

void add_quantize(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "quantize", "Write a model as a GGUF file, with weights of another type",
        {{"keel quantize models/tiny tiny-q8_0.gguf", ""},
         {"keel quantize models/tiny tiny-q4_0.gguf --type q4_0 --perplexity story.txt",
          "also measures the effect on the perplexity of a text"},
         {"keel quantize llama-Q4_K_M.gguf llama-q8_0.gguf --json | jq .relative",
          "converts K-quants to a type that every backend supports"}});
    auto o = std::make_shared<QuantizeOptions>();
    command.argument("MODEL", o->model, "The folder of a model, or a GGUF file");
    command.argument("FILE", o->to, "The GGUF file to write");
    command.option("--type TYPE", o->type,
                   "Type of the matrices: q8_0 (default), q4_0, f16, bf16 or f32; vectors are f32");
    command.option("--perplexity FILE", o->text,
                   "Then measure the perplexity of both models on this text");
    command.flag("--force", o->force, "Replace FILE if it exists");
    command.flag("--json", o->json, "Print one JSON object, with the error of each tensor");
    command.action = [o] { return quantize(*o); };
}

} // namespace keel::cli
