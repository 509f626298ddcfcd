// The filters for lists and dicts.
#include "text/jinja/filters.hpp"

#include "base/display.hpp"
#include "text/jinja/string_methods.hpp"

#include <algorithm>
#include <functional>

namespace keel::jinja {
namespace {

// Reads an attribute path such as "function.name" or "0" from a value.
Value path_value(Evaluator &e, Value value, const Value &path) {
    if (path.is(Kind::integer)) return e.item(value, path);
    if (!path.is(Kind::string))
        fail("expected a string for an attribute, found {}", type_name(path));
    std::string_view rest = path.bytes();
    for (;;) {
        const std::size_t dot = std::min(rest.find('.'), rest.size());
        const std::string part(rest.substr(0, dot));
        const bool is_number = !part.empty() && part.size() < 10 &&
                               part.find_first_not_of("0123456789") == std::string::npos;
        value = e.item(value, is_number ? Value::integer(std::stol(part)) : Value::string(part));
        if (dot == rest.size()) return value;
        rest.remove_prefix(dot + 1);
    }
}

// The value by which a filter orders or compares an item.
Value key_of(Evaluator &e, const Value &item, const Value *attribute, bool case_sensitive) {
    Value key =
        attribute != nullptr && !attribute->is(Kind::none) ? path_value(e, item, *attribute) : item;
    if (!case_sensitive && key.is(Kind::string)) key = e.string(to_lower(key.text(), e.meter()));
    return key;
}

Value length_filter(Evaluator &e, const Value &in, const Bound &) {
    return Value::integer(length(in, e.meter()));
}

Value first(Evaluator &e, const Value &in, const Bound &) {
    const std::vector<Value> items = elements(in, e.meter());
    return items.empty() ? Value::undefined("the list has no first element") : items.front();
}

Value last(Evaluator &e, const Value &in, const Bound &) {
    const std::vector<Value> items = elements(in, e.meter());
    return items.empty() ? Value::undefined("the list has no last element") : items.back();
}

Value join_filter(Evaluator &e, const Value &in, const Bound &a) {
    const Text separator = a[0] != nullptr ? e.text_of(*a[0]) : Text();
    Text out;
    bool is_first = true;
    for (const Value &item : elements(in, e.meter())) {
        const bool has_path = a[1] != nullptr && !a[1]->is(Kind::none);
        const Text part = e.text_of(has_path ? path_value(e, item, *a[1]) : item);
        e.meter().bytes(separator.size() + part.size());
        if (!std::exchange(is_first, false)) out.append(separator);
        out.append(part);
    }
    return e.string(std::move(out));
}

Value to_list(Evaluator &e, const Value &in, const Bound &) {
    return e.list(elements(in, e.meter()));
}

Value items(Evaluator &e, const Value &in, const Bound &) {
    std::vector<Value> out;
    if (!in.is(Kind::undefined)) {
        if (!in.is(Kind::dict)) fail("the filter items: expected a dict, found {}", type_name(in));
        for (const auto &member : in.dict().members)
            out.push_back(e.list({member.first, member.second}, ListForm::tuple));
    }
    return e.list(std::move(out), ListForm::generator);
}

// Sorts items by keys, which are computed once. Equal items keep their order.
std::vector<Value> sorted(Evaluator &e, const std::vector<Value> &all, bool reverse,
                          const std::function<Value(const Value &)> &key) {
    std::vector<std::pair<Value, Value>> keyed;
    e.meter().bytes(all.size() * 3 * sizeof(Value));
    for (const Value &item : all) keyed.emplace_back(key(item), item);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto &x, const auto &y) {
        return reverse ? compare(y.first, x.first, e.meter()) < 0
                       : compare(x.first, y.first, e.meter()) < 0;
    });
    std::vector<Value> out;
    for (auto &pair : keyed) out.push_back(std::move(pair.second));
    return out;
}

Value sort(Evaluator &e, const Value &in, const Bound &a) {
    const bool case_sensitive = a.flag(1, false);
    return e.list(sorted(e, elements(in, e.meter()), a.flag(0, false),
                         [&](const Value &item) { return key_of(e, item, a[2], case_sensitive); }));
}

Value dictsort(Evaluator &e, const Value &in, const Bound &a) {
    if (!in.is(Kind::dict)) fail("the filter dictsort: expected a dict, found {}", type_name(in));
    const std::string by = a.text(1, "key").bytes();
    if (by != "key" && by != "value")
        fail("the filter dictsort: expected key or value for by, found {}", quote_text(by));
    std::vector<Value> pairs;
    for (const auto &member : in.dict().members)
        pairs.push_back(e.list({member.first, member.second}, ListForm::tuple));
    const bool case_sensitive = a.flag(0, false);
    return e.list(sorted(e, pairs, a.flag(2, false), [&](const Value &pair) {
        return key_of(e, pair.list().items[by == "key" ? 0 : 1], nullptr, case_sensitive);
    }));
}

Value reverse(Evaluator &e, const Value &in, const Bound &) {
    std::vector<Value> all = elements(in, e.meter());
    std::reverse(all.begin(), all.end());
    if (!in.is(Kind::string)) return e.list(std::move(all), ListForm::generator);
    Text out;
    for (const Value &character : all) out.append(character.text());
    return e.string(std::move(out));
}

Value unique(Evaluator &e, const Value &in, const Bound &a) {
    std::vector<Value> out, keys;
    for (const Value &item : elements(in, e.meter())) {
        Value key = key_of(e, item, a[1], a.flag(0, false));
        const bool is_known = std::any_of(keys.begin(), keys.end(), [&](const Value &known) {
            return equal(known, key, e.meter());
        });
        if (is_known) continue;
        keys.push_back(std::move(key));
        out.push_back(item);
    }
    return e.list(std::move(out), ListForm::generator);
}

template <bool wants_most> Value extreme(Evaluator &e, const Value &in, const Bound &a) {
    const std::vector<Value> all = elements(in, e.meter());
    if (all.empty()) return Value::undefined("the list is empty");
    std::size_t best = 0;
    Value best_key = key_of(e, all[0], a[1], a.flag(0, false));
    for (std::size_t i = 1; i < all.size(); ++i) {
        Value key = key_of(e, all[i], a[1], a.flag(0, false));
        const int order = compare(key, best_key, e.meter());
        if (wants_most ? order <= 0 : order >= 0) continue;
        best = i;
        best_key = std::move(key);
    }
    return all[best];
}

Value sum(Evaluator &e, const Value &in, const Bound &a) {
    Value total = a[1] != nullptr ? *a[1] : Value::integer(0);
    for (const Value &item : elements(in, e.meter())) {
        const bool has_path = a[0] != nullptr && !a[0]->is(Kind::none);
        total = binary(e, Op::add, total, has_path ? path_value(e, item, *a[0]) : item);
    }
    return total;
}

Value batch(Evaluator &e, const Value &in, const Bound &a) {
    const std::int64_t size = a.integer(0, 0), most = e.meter().limits().range;
    if (size < 1 || size > most)
        fail("the filter batch: expected 1 to {} items in a batch, found {}", most, size);
    std::vector<Value> out, row;
    for (const Value &item : elements(in, e.meter())) {
        if (std::ssize(row) == size) out.push_back(e.list(std::exchange(row, {})));
        row.push_back(item);
    }
    if (!row.empty()) {
        if (a[1] != nullptr && !a[1]->is(Kind::none))
            while (std::ssize(row) < size) row.push_back(*a[1]);
        out.push_back(e.list(std::move(row)));
    }
    return e.list(std::move(out), ListForm::generator);
}

// Takes the first argument of a filter such as map or select, which is a name.
std::string take_name(Arguments &arguments, std::string_view filter, std::string_view what) {
    if (arguments.positional.empty() || !arguments.positional.front().is(Kind::string))
        fail("the filter {}: expected the name of {} as the first argument", filter, what);
    std::string name = arguments.positional.front().bytes();
    arguments.positional.erase(arguments.positional.begin());
    return name;
}

Value map(Evaluator &e, const Value &in, Arguments &arguments) {
    std::vector<Value> out;
    if (!truth(in)) return e.list({}, ListForm::generator); // as in Jinja, also for none
    const std::vector<Value> all = elements(in, e.meter());
    if (arguments.positional.empty() && !arguments.named.empty()) {
        static const std::vector<std::string_view> parameters{"attribute", "default"};
        const Bound a("the filter map", parameters, std::move(arguments));
        for (const Value &item : all) {
            Value value = path_value(e, item, a.needed(0));
            if (value.is(Kind::undefined) && a[1] != nullptr) value = *a[1];
            out.push_back(std::move(value));
        }
    } else {
        const std::string name = take_name(arguments, "map", "a filter");
        for (const Value &item : all) out.push_back(e.filter(name, item, arguments));
    }
    return e.list(std::move(out), ListForm::generator);
}

template <bool wanted, bool by_attribute>
Value choose(Evaluator &e, const Value &in, Arguments &arguments) {
    constexpr std::string_view filter = by_attribute ? wanted ? "selectattr" : "rejectattr"
                                        : wanted     ? "select"
                                                     : "reject";
    if (!truth(in)) return e.list({}, ListForm::generator); // as in Jinja, also for none
    Value path;
    if (by_attribute) {
        if (arguments.positional.empty()) fail("the filter {} needs an attribute", filter);
        path = arguments.positional.front();
        arguments.positional.erase(arguments.positional.begin());
    }
    std::string test;
    if (!arguments.positional.empty()) test = take_name(arguments, filter, "a test");
    std::vector<Value> out;
    for (const Value &item : elements(in, e.meter())) {
        e.meter().steps(1);
        const Value value = by_attribute ? path_value(e, item, path) : item;
        if ((test.empty() ? truth(value) : e.test(test, value, arguments)) == wanted)
            out.push_back(item);
    }
    return e.list(std::move(out), ListForm::generator);
}

} // namespace

const FilterTable &list_filters() {
    static const FilterTable filters{
        {"batch", {{"linecount", "fill_with"}, batch}},
        {"count", {{}, length_filter}},
        {"dictsort", {{"case_sensitive", "by", "reverse"}, dictsort}},
        {"first", {{}, first}},
        {"items", {{}, items}},
        {"join", {{"d", "attribute"}, join_filter}},
        {"last", {{}, last}},
        {"length", {{}, length_filter}},
        {"list", {{}, to_list}},
        {"max", {{"case_sensitive", "attribute"}, extreme<true>}},
        {"min", {{"case_sensitive", "attribute"}, extreme<false>}},
        {"reverse", {{}, reverse}},
        {"sort", {{"reverse", "case_sensitive", "attribute"}, sort}},
        {"sum", {{"attribute", "start"}, sum}},
        {"unique", {{"case_sensitive", "attribute"}, unique}},
    };
    return filters;
}

const OpenFilterTable &list_open_filters() {
    static const OpenFilterTable filters{
        {"map", map},
        {"reject", choose<false, false>},
        {"rejectattr", choose<false, true>},
        {"select", choose<true, false>},
        {"selectattr", choose<true, true>},
    };
    return filters;
}

} // namespace keel::jinja
