#include "text/jinja/value.hpp"

#include "text/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace keel::jinja {
namespace {

struct TextObject final : Object {
    explicit TextObject(Text given, bool safe = false) : text(std::move(given)), is_safe(safe) {
        depth = 0;
    }
    Text text;
    bool is_safe;
};

struct Reason final : Object {
    explicit Reason(std::string given) : text(std::move(given)) { depth = 0; }
    std::string text;
};

// A text that is equal for keys that Python counts as equal, such as 1, 1.0 and true.
std::string key_text(const Value &key) {
    switch (key.kind()) {
    case Kind::string: return "s" + key.bytes();
    case Kind::none: return "n";
    case Kind::boolean:
    case Kind::integer: return "i" + std::to_string(key.integer());
    case Kind::real: {
        const double value = key.real();
        if (value == std::floor(value) && std::abs(value) < 9e15)
            return "i" + std::to_string(static_cast<std::int64_t>(value));
        return "r" + number_text(value);
    }
    default: fail("expected a string or a number as the key of a dict, found {}", type_name(key));
    }
}

int sign(bool less, bool more) { return less ? -1 : more ? 1 : 0; }

} // namespace

Value Value::undefined(std::string reason) {
    return object(Kind::undefined, std::make_shared<Reason>(std::move(reason)));
}

Value Value::real(double value) {
    Value out(Kind::real);
    out.real_ = value;
    return out;
}

Value Value::string(Text text) {
    return object(Kind::string, std::make_shared<TextObject>(std::move(text)));
}

Value Value::safe_string(Text text) {
    return object(Kind::string, std::make_shared<TextObject>(std::move(text), true));
}

bool Value::is_safe() const noexcept { return is(Kind::string) && as<TextObject>().is_safe; }

Value Value::list(std::vector<Value> items, ListForm form) {
    auto list = std::make_shared<List>();
    list->form = form;
    for (const Value &item : items)
        list->depth = std::max(list->depth, checked_depth(item.depth() + 1));
    list->items = std::move(items);
    return object(Kind::list, std::move(list));
}

Value Value::dict(std::shared_ptr<Dict> dict) { return object(Kind::dict, std::move(dict)); }

const Text &Value::text() const noexcept { return as<TextObject>().text; }
const List &Value::list() const noexcept { return as<List>(); }
const Dict &Value::dict() const noexcept { return as<Dict>(); }

const std::string &Value::reason() const noexcept {
    static const std::string unknown = "the value is undefined";
    return object_ ? as<Reason>().text : unknown;
}

void Dict::set(const Value &key, Value value) {
    depth = std::max(depth, checked_depth(value.depth() + 1));
    const auto [place, is_new] = places_.try_emplace(key_text(key), members.size());
    if (is_new)
        members.emplace_back(key, std::move(value));
    else
        members[place->second].second = std::move(value);
}

const Value *Dict::find(const Value &key) const {
    if (key.is(Kind::list) || key.is(Kind::dict) || key.is(Kind::undefined)) return nullptr;
    const auto place = places_.find(key_text(key));
    return place == places_.end() ? nullptr : &members[place->second].second;
}

const Value *Dict::find(std::string_view key) const {
    const auto place = places_.find("s" + std::string(key));
    return place == places_.end() ? nullptr : &members[place->second].second;
}

std::string_view type_name(const Value &value) {
    switch (value.kind()) {
    case Kind::undefined: return "an undefined value";
    case Kind::none: return "none";
    case Kind::boolean: return "a boolean";
    case Kind::integer: return "an integer";
    case Kind::real: return "a float";
    case Kind::string: return "a string";
    case Kind::list: return value.list().form == ListForm::tuple ? "a tuple" : "a list";
    case Kind::dict: return "a dict";
    case Kind::space: return "a namespace";
    case Kind::loop: return "a loop";
    case Kind::macro: return "a macro";
    case Kind::method: return "a method";
    case Kind::function: return "a function";
    case Kind::cycler: return "a cycler";
    case Kind::joiner: return "a joiner";
    }
    return "a value";
}

std::uint32_t checked_depth(std::uint32_t depth) {
    if (depth > Limits().value_depth)
        fail("lists and dicts are nested deeper than {} levels, which is the limit",
             Limits().value_depth);
    return depth;
}

bool truth(const Value &value) {
    switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.integer() != 0;
    case Kind::real: return value.real() != 0;
    case Kind::string: return !value.bytes().empty();
    case Kind::list: return value.list().form == ListForm::generator || !value.list().items.empty();
    case Kind::dict: return !value.dict().members.empty();
    default: return true;
    }
}

bool equal(const Value &a, const Value &b, Meter &meter) {
    meter.steps(1);
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return a.real() == b.real();
        return a.integer() == b.integer();
    }
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string:
        if (a.bytes().size() != b.bytes().size()) return false;
        meter.bytes(a.bytes().size());
        return a.bytes() == b.bytes();
    case Kind::list: {
        const auto &x = a.list().items, &y = b.list().items;
        if (a.list().form != b.list().form || x.size() != y.size()) return false;
        for (std::size_t i = 0; i < x.size(); ++i)
            if (!equal(x[i], y[i], meter)) return false;
        return true;
    }
    case Kind::dict: {
        if (a.dict().members.size() != b.dict().members.size()) return false;
        for (const auto &member : a.dict().members) {
            const Value *other = b.dict().find(member.first);
            if (other == nullptr || !equal(member.second, *other, meter)) return false;
        }
        return true;
    }
    default: return a.identity() == b.identity();
    }
}

int compare(const Value &a, const Value &b, Meter &meter) {
    meter.steps(1);
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real))
            return sign(a.real() < b.real(), a.real() > b.real());
        return sign(a.integer() < b.integer(), a.integer() > b.integer());
    }
    if (a.is(Kind::string) && b.is(Kind::string)) {
        meter.bytes(std::min(a.bytes().size(), b.bytes().size()));
        return a.bytes().compare(b.bytes()); // the order of UTF-8 is the order of code points
    }
    if (a.is(Kind::list) && b.is(Kind::list) && a.list().form == b.list().form) {
        const auto &x = a.list().items, &y = b.list().items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
            if (!equal(x[i], y[i], meter)) return compare(x[i], y[i], meter);
        return sign(x.size() < y.size(), x.size() > y.size());
    }
    for (const Value *value : {&a, &b})
        if (value->is(Kind::undefined)) fail("{}", value->reason());
    fail("cannot compare {} with {} by order", type_name(a), type_name(b));
}

std::vector<Value> elements(const Value &value, Meter &meter) {
    std::vector<Value> out;
    switch (value.kind()) {
    case Kind::undefined: break;
    case Kind::list:
        meter.bytes(value.list().items.size() * sizeof(Value));
        out = value.list().items;
        break;
    case Kind::dict:
        meter.bytes(value.dict().members.size() * sizeof(Value));
        for (const auto &member : value.dict().members) out.push_back(member.first);
        break;
    case Kind::string: {
        const Text &text = value.text();
        meter.bytes(text.size() * 160); // each character becomes a value
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t next = at + utf8_length(text.bytes(), at);
            out.push_back(Value::string(text.part(at, next)));
            at = next;
        }
        break;
    }
    default: fail("expected a list, a dict or a string, found {}", type_name(value));
    }
    return out;
}

std::int64_t length(const Value &value, Meter &meter) {
    switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: {
        meter.bytes(value.bytes().size());
        return std::count_if(value.bytes().begin(), value.bytes().end(),
                             [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    }
    case Kind::list:
        if (value.list().form == ListForm::generator)
            fail("the result of a filter has no length; convert it with the filter list first");
        return std::ssize(value.list().items);
    case Kind::dict: return std::ssize(value.dict().members);
    default: fail("expected a value with a length, found {}", type_name(value));
    }
}

} // namespace keel::jinja
