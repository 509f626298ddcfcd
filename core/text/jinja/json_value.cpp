#include "text/jinja/json_value.hpp"

#include "base/error.hpp"
#include "base/json_reader.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace keel::jinja {
namespace {

// Receives the parser's events, and builds the value. The text was checked before.
class Builder : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit Builder(const std::string &name) : name_(name) {}

    bool null() override { return add(Value::none()); }
    bool boolean(bool value) override { return add(Value::boolean(value)); }
    bool number_integer(std::int64_t value) override { return add(Value::integer(value)); }
    bool number_unsigned(std::uint64_t value) override {
        if (value > static_cast<std::uint64_t>(INT64_MAX))
            throw_error(ErrorKind::input,
                        "{}: expected an integer of at most 64 bits with a sign, found {}", name_,
                        value);
        return add(Value::integer(static_cast<std::int64_t>(value)));
    }
    bool number_float(double value, const std::string &text) override {
        if (text.find_first_of(".eE") == std::string::npos)
            throw_error(ErrorKind::input,
                        "{}: expected an integer of at most 64 bits with a sign, found {}", name_,
                        text.substr(0, 60));
        return add(Value::real(value));
    }
    bool string(std::string &value) override { return add(Value::string(std::move(value), true)); }
    bool binary(nlohmann::json::binary_t &) override { return false; }
    bool start_object(std::size_t) override {
        open_.push_back({std::make_shared<Dict>(), {}, {}});
        return true;
    }
    bool key(std::string &value) override {
        open_.back().key = Value::string(std::move(value), true);
        return true;
    }
    bool end_object() override {
        Value value = Value::dict(std::move(open_.back().dict));
        open_.pop_back();
        return add(std::move(value));
    }
    bool start_array(std::size_t) override {
        open_.push_back({});
        return true;
    }
    bool end_array() override {
        Value value = Value::list(std::move(open_.back().items));
        open_.pop_back();
        return add(std::move(value));
    }
    bool parse_error(std::size_t, const std::string &, const nlohmann::json::exception &) override {
        return false;
    }

    Value root;

  private:
    struct Open {
        std::shared_ptr<Dict> dict; // NULL for an array
        Value key;
        std::vector<Value> items;
    };
    bool add(Value value) {
        if (open_.empty())
            root = std::move(value);
        else if (open_.back().dict)
            open_.back().dict->set(open_.back().key, std::move(value));
        else
            open_.back().items.push_back(std::move(value));
        return true;
    }

    const std::string &name_;
    std::vector<Open> open_;
};

} // namespace

Value read_json(std::string_view text, const std::string &name) {
    // checks the syntax and the limits, with good messages
    const JsonDocument checked(text, name, JsonLimits{std::size_t{64} << 20, 64, 2'000'000, false});
    Builder builder(name);
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    return std::move(builder.root);
}

} // namespace keel::jinja
