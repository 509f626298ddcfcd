// Input: any bytes as an eviction log. They give either an error of one line, or a summary, a page
// and JSON.
#include "base/error.hpp"
#include "eval/evictions/history.hpp"

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try {
        const auto history =
            keel::parse_eviction_log({reinterpret_cast<const char *>(data), size}, "fuzz.jsonl");
        keel::log_text(history, {});
        keel::log_html(history, {});
        keel::log_json(history).dump();
    } catch (const keel::Error &) {
    }
    return 0;
}
