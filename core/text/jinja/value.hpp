#pragma once

#include "text/jinja/meter.hpp"
#include "text/jinja/text.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace keel::jinja {

enum class Kind {
    undefined, // a missing variable, member or element
    none,
    boolean,
    integer,
    real,
    string,
    list, // also tuples and results of generators
    dict,
    space,  // namespace(...)
    loop,   // the variable "loop"
    macro,  // also "caller" in a call block
    method, // a method with its object, such as message.items
    function,
    cycler,
    joiner,
};

class Value;

// A part of a value that several values share.
struct Object {
    Object() = default;
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    virtual ~Object() = default;
    std::uint32_t depth = 1; // how deep lists and dicts are nested in this object
};

enum class ListForm {
    list,
    tuple,
    generator, // as in Jinja: always true, without length and without text
};

struct List;
struct Dict;

// A value of a template. Lists, dicts and strings never change after they are made. Copies share
// their contents. Arithmetic follows Python, with integers of 64 bits.
class Value {
  public:
    Value() = default;                          // undefined
    static Value undefined(std::string reason); // reason: for messages, such as "'x' is undefined"
    static Value none() { return Value(Kind::none); }
    static Value boolean(bool value) { return Value(Kind::boolean, value ? 1 : 0); }
    static Value integer(std::int64_t value) { return Value(Kind::integer, value); }
    static Value real(double value);
    static Value string(Text text);
    static Value string(std::string bytes, bool is_data = false) {
        return string(Text(std::move(bytes), is_data));
    }
    // A string of the filter safe. If + joins it with another string, the other one is escaped for
    // HTML.
    static Value safe_string(Text text);
    // Throws Failure if the values are nested deeper than the limit.
    static Value list(std::vector<Value> items, ListForm form = ListForm::list);
    static Value dict(std::shared_ptr<Dict> dict);
    static Value object(Kind kind, std::shared_ptr<Object> object) {
        Value out(kind);
        out.object_ = std::move(object);
        return out;
    }

    Kind kind() const noexcept { return kind_; }
    bool is(Kind kind) const noexcept { return kind_ == kind; }
    bool is_number() const noexcept {
        return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real;
    }
    // The next functions are only for a value of the right kind.
    bool flag() const noexcept { return integer_ != 0; }
    std::int64_t integer() const noexcept { return integer_; } // also for booleans
    double real() const noexcept {                             // also for integers and booleans
        return kind_ == Kind::real ? real_ : static_cast<double>(integer_);
    }
    const Text &text() const noexcept;
    bool is_safe() const noexcept; // true for a string of safe_string()
    const std::string &bytes() const noexcept { return text().bytes(); }
    const List &list() const noexcept;
    const Dict &dict() const noexcept;
    template <typename T> T &as() const noexcept { return static_cast<T &>(*object_); }
    const std::string &reason() const noexcept; // why a value is undefined

    std::uint32_t depth() const noexcept { return object_ ? object_->depth : 0; }
    const Object *identity() const noexcept { return object_.get(); }

  private:
    explicit Value(Kind kind, std::int64_t integer = 0) : kind_(kind), integer_(integer) {}

    Kind kind_ = Kind::undefined;
    union {
        std::int64_t integer_ = 0;
        double real_;
    };
    std::shared_ptr<Object> object_;
};

struct List final : Object {
    std::vector<Value> items;
    ListForm form = ListForm::list;
};

// A dict keeps the order in which its keys were set. Keys are none, booleans, numbers or strings.
struct Dict final : Object {
    std::vector<std::pair<Value, Value>> members;

    // Throws Failure for a key of another kind, and if values are nested too deep.
    void set(const Value &key, Value value);
    const Value *find(const Value &key) const; // NULL if the key is absent
    const Value *find(std::string_view key) const;

  private:
    std::unordered_map<std::string, std::size_t> places_; // place in `members` of each key
};

struct Method final : Object {
    Method(Value of, std::string called) : self(std::move(of)), name(std::move(called)) {
        depth = self.depth() + 1;
    }
    Value self;
    std::string name;
};

// Python's name for the type of a value, for messages.
std::string_view type_name(const Value &value);
// Throws Failure if `depth` exceeds the limit of nested values.
std::uint32_t checked_depth(std::uint32_t depth);

bool truth(const Value &value);
// Python's ==. Counts its work.
bool equal(const Value &a, const Value &b, Meter &meter);
// Python's order: negative, 0 or positive. Throws Failure for values that have no order.
int compare(const Value &a, const Value &b, Meter &meter);

// The elements of a value in a for loop: of a list, the keys of a dict, the characters of a string.
// Throws Failure for other values.
std::vector<Value> elements(const Value &value, Meter &meter);
// len(). Throws Failure for values without a length.
std::int64_t length(const Value &value, Meter &meter);

// str(), as {{ }} writes a value.
Text to_text(const Value &value, Meter &meter);
// repr(), as values are written inside of lists.
Text to_repr(const Value &value, Meter &meter);

struct JsonStyle {
    bool ensure_ascii = false, sort_keys = false;
    bool has_indent = false;
    std::string indent, comma = ", ", colon = ": ";
};
// Python's json.dumps().
Text to_json(const Value &value, const JsonStyle &style, Meter &meter);
// A number as Python writes it: 1.0, 1e+16, 0.1
std::string number_text(double value);

} // namespace keel::jinja
