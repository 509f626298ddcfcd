#include "base/json_writer.hpp"

#include <nlohmann/json.hpp>

namespace keel {

void JsonWriter::separate() {
    if (needs_comma_) out_ += ',';
    needs_comma_ = true;
}

JsonWriter &JsonWriter::open(char bracket) {
    separate();
    out_ += bracket;
    needs_comma_ = false;
    return *this;
}

JsonWriter &JsonWriter::close(char bracket) {
    out_ += bracket;
    needs_comma_ = true;
    return *this;
}

JsonWriter &JsonWriter::key(std::string_view name) {
    value(name);
    out_ += ':';
    needs_comma_ = false;
    return *this;
}

JsonWriter &JsonWriter::raw(std::string_view json) {
    separate();
    out_ += json;
    return *this;
}

JsonWriter &JsonWriter::value(std::string_view text) {
    return raw(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

JsonWriter &JsonWriter::value(double number) { return raw(nlohmann::json(number).dump()); }

} // namespace keel
