#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace keel {

// Writes a JSON text from front to end, on one line. The caller must call the functions in an order
// that gives valid JSON. Bytes that are not UTF-8 become U+FFFD. Numbers that are not finite become
// null.
class JsonWriter {
  public:
    JsonWriter &begin_object() { return open('{'); }
    JsonWriter &end_object() { return close('}'); }
    JsonWriter &begin_array() { return open('['); }
    JsonWriter &end_array() { return close(']'); }
    JsonWriter &key(std::string_view name);

    JsonWriter &null() { return raw("null"); }
    JsonWriter &value(std::string_view text);
    JsonWriter &value(const char *text) { return value(std::string_view(text)); }
    JsonWriter &value(const std::string &text) { return value(std::string_view(text)); }
    JsonWriter &value(bool flag) { return raw(flag ? "true" : "false"); }
    JsonWriter &value(double number);
    JsonWriter &value(std::signed_integral auto number) { return raw(std::to_string(number)); }
    JsonWriter &value(std::unsigned_integral auto number) { return raw(std::to_string(number)); }
    template <typename T> JsonWriter &value(const std::optional<T> &maybe) {
        return maybe ? value(*maybe) : null();
    }
    template <typename T> JsonWriter &member(std::string_view name, const T &thing) {
        return key(name).value(thing);
    }
    // Writes a value that is already JSON text.
    JsonWriter &raw(std::string_view json);

    std::string take() { return std::move(out_); }

  private:
    JsonWriter &open(char bracket);
    JsonWriter &close(char bracket);
    void separate(); // writes a comma if a value comes before

    std::string out_;
    bool needs_comma_ = false;
};

} // namespace keel
