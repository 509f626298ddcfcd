#include "eval/bench/matrix/page.hpp"

#include "base/json_writer.hpp"
#include "bench_files.hpp"
#include "eval/page/page.hpp"

namespace keel {

std::string bench_html(const std::vector<BenchLine> &lines, const std::string &title) {
    JsonWriter json;
    json.begin_object().member("title", title).key("columns").begin_array();
    for (const char *column :
         {"name",        "model",        "weights",       "backend",   "kv",
          "policy",      "sync",         "prompt",        "prefill",   "prefillLow",
          "prefillHigh", "prefillShare", "depth",         "sequences", "decode",
          "decodeLow",   "decodeHigh",   "decodeShare",   "heldBytes", "heldPeak",
          "peakBytes",   "loadSeconds",  "readBandwidth", "machine",   "version",
          "commit",      "date",         "file"})
        json.value(column);
    json.end_array().key("rows").begin_array();
    const auto rate = [&](const std::optional<BenchRate> &r) {
        if (r) {
            json.value(r->median).value(r->min).value(r->max).value(r->share);
        } else {
            json.null().null().null().null();
        }
    };
    for (const BenchLine &l : lines) {
        json.begin_array();
        for (const std::string *text :
             {&l.name, &l.model, &l.weights, &l.backend, &l.kv, &l.policy, &l.sync})
            json.value(*text);
        json.value(l.prefill_tokens);
        rate(l.prefill);
        json.value(l.depth).value(l.sequences);
        rate(l.decode);
        json.value(l.held_bytes).value(l.held_peak_bytes).value(l.peak_bytes);
        json.value(l.load_seconds).value(l.read_bandwidth);
        for (const std::string *text : {&l.machine, &l.version, &l.commit, &l.date, &l.file})
            json.value(*text);
        json.end_array();
    }
    json.end_array().end_object();
    return page_html({title, bench_html_mark, json.take(), page_js, {}});
}

} // namespace keel
