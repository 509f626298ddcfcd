#include "base/json_reader.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::json;

// Passes a text to the parser and records how far the parser has read.
class TrackedIterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char *;
    using reference = const char &;

    TrackedIterator(const char *at, const char **last) : at_(at), last_(last) {}
    reference operator*() const { return *at_; }
    TrackedIterator &operator++() {
        *last_ = at_++;
        return *this;
    }
    TrackedIterator operator++(int) {
        const TrackedIterator before = *this;
        ++*this;
        return before;
    }
    bool operator==(const TrackedIterator &other) const { return at_ == other.at_; }

  private:
    const char *at_;
    const char **last_; // the last character that the parser has read
};

// Receives the parser's events. It reports when the parser enters a value and when it leaves a
// value.
class Events : public nlohmann::json_sax<Json> {
  public:
    bool null() final { return scalar(nullptr); }
    bool boolean(bool value) final { return scalar(value); }
    bool number_integer(int64_t value) final { return scalar(value); }
    bool number_unsigned(uint64_t value) final { return scalar(value); }
    bool number_float(double value, const std::string &) final { return scalar(value); }
    bool string(std::string &value) final { return scalar(std::move(value)); }
    bool binary(Json::binary_t &) final { return false; } // JSON text has no binary values
    bool start_object(size_t) final { return enter(Json::object()); }
    bool start_array(size_t) final { return enter(Json::array()); }
    bool end_object() final { return leave(); }
    bool end_array() final { return leave(); }

  private:
    virtual bool enter(Json value) = 0; // the value is an empty array or object
    virtual bool leave() = 0;
    virtual bool scalar(Json value) = 0;
};

// Parses the text and calls `events`. `last` is the last character that the parser has read.
void parse(std::string_view text, const char *&last, Events &events) {
    const char *end = text.data() + text.size();
    Json::sax_parse(TrackedIterator(text.data(), &last), TrackedIterator(end, &last), &events);
}

// Builds the tree. Stops before the tree is larger than the limits allow.
class Builder : public Events {
  public:
    Builder(std::string_view text, const std::string &name, size_t line, const JsonLimits &limits)
        : text_(text), name_(name), line_(line), limits_(limits) {}

    void build() { parse(text_, last_, *this); }
    Json take() { return std::move(root_); }

    bool key(std::string &key) override {
        Json &object = *open_.back();
        if (!limits_.repeated_keys && object.contains(key))
            fail(
                fmt::format("the key '{}' occurs twice in one object; remove one", printable(key)));
        next_ = &object[key];
        return true;
    }

    // `byte` counts from 1. It can be one past the end of the text. Columns count bytes from 1.
    bool parse_error(size_t byte, const std::string &, const Json::exception &error) override {
        // The message is "[json.exception...] parse error at line 1, column 2: REASON" or "[...]
        // REASON".
        std::string_view reason = error.what();
        for (const char *front : {"] ", "parse error at line"}) {
            const size_t at = reason.find(front);
            if (at == std::string_view::npos) continue;
            reason.remove_prefix(front[0] == ']' ? at + 2 : reason.find(": ", at) + 2);
        }
        const std::string_view before =
            text_.substr(0, std::min(byte == 0 ? 0 : byte - 1, text_.size()));
        const auto lines = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
        const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
        const std::string place = line_ == 0
                                      ? fmt::format("{}: byte {}", name_, byte)
                                      : fmt::format("{}:{}:{}", name_, line_ + lines, column);
        throw_error(ErrorKind::input, "{}: not valid JSON: {}", place, printable(reason, 200));
    }

  private:
    [[noreturn]] void fail(const std::string &what) const {
        const auto lines = static_cast<size_t>(std::count(text_.data(), last_, '\n'));
        const std::string place = line_ == 0 ? name_ : fmt::format("{}:{}", name_, line_ + lines);
        throw_error(ErrorKind::input, "{}: {}", place, what);
    }

    bool enter(Json value) override {
        if (open_.size() >= limits_.depth)
            fail(fmt::format("expected at most {} nested levels, found more", limits_.depth));
        open_.push_back(&add(std::move(value)));
        return true;
    }
    bool leave() override {
        open_.pop_back();
        return true;
    }
    bool scalar(Json value) override {
        add(std::move(value));
        return true;
    }
    Json &add(Json value) {
        if (++values_ > limits_.values)
            fail(fmt::format("expected at most {} values, found more", limits_.values));
        if (open_.empty()) return root_ = std::move(value);
        if (open_.back()->is_object()) return *next_ = std::move(value);
        return open_.back()->emplace_back(std::move(value));
    }

    std::string_view text_;
    const std::string &name_;
    size_t line_;
    const JsonLimits &limits_;
    Json root_;
    std::vector<Json *>
        open_; // open arrays and objects; only the last one grows, so the pointers stay valid
    const char *last_ = nullptr; // the last character that the parser has read
    Json *next_ = nullptr;       // the member that the last key created
    size_t values_ = 0;
};

// One step on a path: from an object to a member, or from an array to an element.
struct Step {
    std::string key; // for a member of an object
    size_t index = 0;
    bool operator==(const Step &) const = default;
};

// Parses a text again to find the line of the value at a path.
class LineFinder : public Events {
  public:
    LineFinder(std::string_view text, const std::vector<Step> &path) : text_(text), path_(path) {}

    // Returns the line, counted from 0.
    size_t find() {
        parse(text_, last_, *this);
        return line_;
    }

  private:
    bool key(std::string &key) override {
        at_.back().key = key;
        return true;
    }
    bool parse_error(size_t, const std::string &, const Json::exception &) override {
        return false;
    }
    bool enter(Json value) override {
        arrive();
        at_.emplace_back();
        is_array_.push_back(value.is_array());
        return true;
    }
    bool leave() override {
        at_.pop_back();
        is_array_.pop_back();
        next();
        return true;
    }
    bool scalar(Json) override {
        arrive();
        next();
        return true;
    }
    void next() {
        if (!at_.empty() && is_array_.back()) ++at_.back().index;
    }
    // The parser can be one character past the end of the value.
    void arrive() {
        if (at_ == path_) line_ = static_cast<size_t>(std::count(text_.data(), last_, '\n'));
    }

    std::string_view text_;
    const std::vector<Step> &path_;
    const char *last_ = nullptr;
    std::vector<Step> at_; // one step for each open array or object
    std::vector<bool> is_array_;
    size_t line_ = 0;
};

// Finds the path from the value `from` to the value `value`, which is a part of `from`.
bool find_path(const Json &from, const Json &value, std::vector<Step> &path) {
    if (&from == &value) return true;
    const auto look_into = [&](const Json &part, const std::string &key, size_t index) {
        if (&part != &value && !part.is_structured()) return false;
        path.push_back({key, index});
        if (find_path(part, value, path)) return true;
        path.pop_back();
        return false;
    };
    if (from.is_object()) {
        for (auto it = from.begin(); it != from.end(); ++it)
            if (look_into(*it, it.key(), 0)) return true;
    }
    if (from.is_array()) {
        for (size_t i = 0; i < from.size(); ++i)
            if (look_into(from[i], {}, i)) return true;
    }
    return false;
}

} // namespace

JsonDocument::JsonDocument(std::string_view text, std::string name, const JsonLimits &limits,
                           size_t line)
    : text_(text), name_(std::move(name)), line_(line) {
    if (text.size() > limits.bytes)
        throw_error(ErrorKind::input, "{}: expected at most {} of JSON, found {}", name_,
                    format_bytes(limits.bytes), format_bytes(text.size()));
    Builder builder(text, name_, line, limits);
    builder.build();
    tree_ = std::make_unique<Json>(builder.take());
}

JsonDocument JsonDocument::of_tree(Json tree, std::string name) {
    JsonDocument document;
    document.name_ = std::move(name);
    document.tree_ = std::make_unique<Json>(std::move(tree));
    return document;
}

JsonDocument::JsonDocument(JsonDocument &&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonNode JsonDocument::root() const { return {*this, *tree_}; }

JsonNode JsonDocument::object() const {
    if (!tree_->is_object()) root().expected("a JSON object");
    return root();
}

Json JsonDocument::take() && { return std::move(*tree_); }

std::string JsonDocument::place(const Json &value) const {
    if (line_ == 0) return name_;
    std::vector<Step> steps;
    find_path(*tree_, value, steps);
    return fmt::format("{}:{}", name_, line_ + LineFinder(text_, steps).find());
}

std::string JsonDocument::path(const Json &value) const {
    std::vector<Step> steps;
    find_path(*tree_, value, steps);
    std::string out;
    const Json *at = tree_.get();
    for (const Step &step : steps) {
        if (at->is_object()) {
            out += (out.empty() ? "" : ".") + printable(step.key);
            at = &(*at)[step.key];
        } else {
            out += fmt::format("[{}]", step.index);
            at = &(*at)[step.index];
        }
    }
    return out;
}

} // namespace keel
