// The methods of dicts, lists and other objects, and the functions of templates.
#include "base/display.hpp"
#include "text/jinja/arguments.hpp"
#include "text/jinja/string_methods.hpp"

#include <algorithm>
#include <array>

namespace keel::jinja {
namespace {

constexpr std::array<std::string_view, 5> dict_methods{"items", "keys", "values", "get", "copy"};
// Methods that change their object. The sandbox of transformers refuses them.
constexpr std::array<std::string_view, 5> dict_changes{"clear", "pop", "popitem", "setdefault",
                                                       "update"};
constexpr std::array<std::string_view, 2> list_methods{"index", "count"};
constexpr std::array<std::string_view, 8> list_changes{"append", "clear",  "pop",  "reverse",
                                                       "insert", "remove", "sort", "extend"};
constexpr std::array<std::string_view, 7> functions{
    "range", "namespace", "dict", "joiner", "cycler", "raise_exception", "strftime_now"};

template <std::size_t n>
bool has(const std::array<std::string_view, n> &names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

Bound bound(std::string_view name, const std::vector<std::string_view> &parameters,
            Arguments arguments) {
    return Bound(std::string(name), parameters, std::move(arguments));
}

Value call_dict_method(Evaluator &e, const Value &self, const std::string &name,
                       Arguments arguments) {
    const Dict &dict = self.dict();
    if (name == "get") {
        static const std::vector<std::string_view> parameters{"key", "default"};
        const Bound a = bound("the method get of dicts", parameters, std::move(arguments));
        const Value &key = a.needed(0);
        if (key.is(Kind::string)) e.meter().bytes(key.bytes().size());
        if (const Value *found = dict.find(key)) return *found;
        return a[1] != nullptr ? *a[1] : Value::none();
    }
    static const std::vector<std::string_view> none;
    bound("the method " + name + " of dicts", none, std::move(arguments));
    if (name == "copy") return self;
    std::vector<Value> out;
    for (const auto &member : dict.members) {
        if (name == "items")
            out.push_back(e.list({member.first, member.second}, ListForm::tuple));
        else
            out.push_back(name == "keys" ? member.first : member.second);
    }
    return e.list(std::move(out));
}

Value call_list_method(Evaluator &e, const Value &self, const std::string &name,
                       Arguments arguments) {
    static const std::vector<std::string_view> parameters{"value"};
    const Bound a = bound("the method " + name + " of lists", parameters, std::move(arguments));
    const auto &items = self.list().items;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!equal(items[i], a.needed(0), e.meter())) continue;
        if (name == "index") return Value::integer(static_cast<std::int64_t>(i));
        ++count;
    }
    if (name == "index") fail("index: the list does not contain the value");
    return Value::integer(count);
}

Value cycle(const Loop &loop, const Arguments &arguments) {
    const std::vector<Value> &values = arguments.positional;
    if (values.empty()) fail("loop.cycle needs one argument or more");
    return values[loop.at % values.size()];
}

Value make_range(Evaluator &e, Arguments arguments) {
    if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3)
        fail("range takes 1 to 3 integers");
    std::array<std::int64_t, 3> n{0, 0, 1};
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
        const Value &value = arguments.positional[i];
        if (!value.is(Kind::integer) && !value.is(Kind::boolean))
            fail("range: expected an integer, found {}", type_name(value));
        n[i] = value.integer();
    }
    if (arguments.positional.size() == 1) n = {0, n[0], 1};
    const auto [from, to, step] = n;
    if (step == 0) fail("range: the step is 0");
    const __int128 span = static_cast<__int128>(to) - from;
    __int128 count = step > 0 ? (span + step - 1) / step : (span + step + 1) / step;
    count = std::max<__int128>(count, 0);
    const std::int64_t most = e.meter().limits().range;
    if (count > most) fail("range: expected at most {} elements, found more", most);
    std::vector<Value> out;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
        out.push_back(Value::integer(from + i * step));
    return e.list(std::move(out));
}

Value make_namespace(Evaluator &e, Arguments arguments) {
    const auto space = std::make_shared<Space>();
    e.meter().bytes(256);
    for (const Value &given : arguments.positional) {
        if (!given.is(Kind::dict))
            fail("namespace: expected a dict or named values, found {}", type_name(given));
        for (const auto &member : given.dict().members)
            space->values.insert_or_assign(e.text_of(member.first).bytes(), member.second);
    }
    for (auto &[name, value] : arguments.named)
        space->values.insert_or_assign(name, std::move(value));
    e.keep(space);
    return Value::object(Kind::space, space);
}

Value make_dict(Evaluator &e, Arguments arguments) {
    auto dict = std::make_shared<Dict>();
    const auto set = [&](const Value &key, const Value &value) {
        e.meter().bytes(192 + (key.is(Kind::string) ? key.bytes().size() : 0));
        dict->set(key, value);
    };
    for (const Value &given : arguments.positional) {
        if (given.is(Kind::dict)) {
            for (const auto &member : given.dict().members) set(member.first, member.second);
            continue;
        }
        for (const Value &pair : elements(given, e.meter())) {
            const std::vector<Value> parts = elements(pair, e.meter());
            if (parts.size() != 2) fail("dict: expected pairs of a key and a value");
            set(parts[0], parts[1]);
        }
    }
    for (const auto &[name, value] : arguments.named) set(Value::string(name), value);
    return Value::dict(std::move(dict));
}

Value make_cycler(Evaluator &e, Arguments arguments) {
    if (arguments.positional.empty()) fail("cycler needs one argument or more");
    const auto cycler = std::make_shared<Cycler>();
    e.meter().bytes(256);
    for (const Value &item : arguments.positional)
        cycler->depth = std::max(cycler->depth, checked_depth(item.depth() + 1));
    cycler->items = std::move(arguments.positional);
    return Value::object(Kind::cycler, cycler);
}

Value make_joiner(Evaluator &e, Arguments arguments) {
    static const std::vector<std::string_view> parameters{"sep"};
    const Bound a = bound("joiner", parameters, std::move(arguments));
    const auto joiner = std::make_shared<Joiner>();
    joiner->separator = e.string(a.text(0, ", "));
    return Value::object(Kind::joiner, joiner);
}

Value format_time(Evaluator &e, Arguments arguments) {
    static const std::vector<std::string_view> parameters{"format"};
    const Bound a = bound("strftime_now", parameters, std::move(arguments));
    const Text format = a.needed_text(0);
    const std::time_t now = e.now();
    std::tm parts{};
    localtime_r(&now, &parts);
    std::array<char, 1024> buffer{};
    const std::size_t size = format.size() > 256 ? 0
                                                 : std::strftime(buffer.data(), buffer.size(),
                                                                 format.bytes().c_str(), &parts);
    if (size == 0 && !format.empty())
        fail("strftime_now: the format {} is too long or gives no text",
             quote_text(format.bytes()));
    return e.string(Text(std::string(buffer.data(), size), false));
}

} // namespace

bool has_method(const Value &self, const std::string &name) {
    switch (self.kind()) {
    case Kind::string: return has_string_method(name);
    case Kind::dict: return has(dict_methods, name) || has(dict_changes, name);
    case Kind::list: return has(list_methods, name) || has(list_changes, name);
    case Kind::loop: return name == "cycle";
    case Kind::cycler: return name == "next" || name == "reset";
    default: return false;
    }
}

Value call_method(Evaluator &evaluator, const Value &self, const std::string &name,
                  Arguments arguments) {
    evaluator.meter().steps(1);
    switch (self.kind()) {
    case Kind::string:
        return call_string_method(evaluator, self.text(), name, std::move(arguments));
    case Kind::dict:
    case Kind::list:
        if (self.is(Kind::dict) ? has(dict_changes, name) : has(list_changes, name))
            fail("{}: templates must not change {}; transformers refuses this method too", name,
                 type_name(self));
        return self.is(Kind::dict) ? call_dict_method(evaluator, self, name, std::move(arguments))
                                   : call_list_method(evaluator, self, name, std::move(arguments));
    case Kind::loop: return cycle(self.as<Loop>(), arguments);
    default: break;
    }
    auto &cycler = self.as<Cycler>();
    if (name == "reset") {
        cycler.at = 0;
        return Value::none();
    }
    const std::size_t at = cycler.at;
    cycler.at = (at + 1) % cycler.items.size();
    return cycler.items[at];
}

bool has_function(const std::string &name) { return has(functions, name); }

Value function_value(const std::string &name) {
    return Value::object(Kind::function, std::make_shared<Method>(Value(), name));
}

Value call_function(Evaluator &evaluator, const std::string &name, Arguments arguments) {
    evaluator.meter().steps(1);
    if (name == "range") return make_range(evaluator, std::move(arguments));
    if (name == "namespace") return make_namespace(evaluator, std::move(arguments));
    if (name == "dict") return make_dict(evaluator, std::move(arguments));
    if (name == "cycler") return make_cycler(evaluator, std::move(arguments));
    if (name == "joiner") return make_joiner(evaluator, std::move(arguments));
    if (name == "strftime_now") return format_time(evaluator, std::move(arguments));
    static const std::vector<std::string_view> parameters{"message"};
    const Bound a = bound("raise_exception", parameters, std::move(arguments));
    const Text message = a[0] != nullptr ? evaluator.text_of(*a[0]) : Text();
    fail("the template refuses the conversation: {}", printable(message.bytes(), 400));
}

} // namespace keel::jinja
