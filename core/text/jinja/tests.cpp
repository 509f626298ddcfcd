// The tests: the words after "is".
#include "base/display.hpp"
#include "base/suggest.hpp"
#include "text/jinja/arguments.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <map>

namespace keel::jinja {
namespace {

using Check = bool (*)(Evaluator &, const Value &, const Value *); // the argument may be NULL

const Value &operand(const Value *given) {
    if (given == nullptr) fail("the test needs an argument");
    return *given;
}

std::int64_t integer_of(const Value &value) {
    if (value.is(Kind::undefined)) fail("{}", value.reason());
    if (!value.is(Kind::integer) && !value.is(Kind::boolean))
        fail("expected an integer, found {}", type_name(value));
    return value.integer();
}

bool is_function(const Value &v) {
    return v.is(Kind::macro) || v.is(Kind::method) || v.is(Kind::function) || v.is(Kind::joiner);
}
bool is_countable(const Value &v) {
    return v.is(Kind::string) || v.is(Kind::dict) || v.is(Kind::undefined) || v.is(Kind::list);
}

template <Kind... kinds> bool is_kind(Evaluator &, const Value &v, const Value *) {
    return (v.is(kinds) || ...);
}
template <int low, int high> bool is_order(Evaluator &e, const Value &v, const Value *other) {
    const int order = compare(v, operand(other), e.meter());
    return (order > 0) - (order < 0) >= low && (order > 0) - (order < 0) <= high;
}
bool is_equal(Evaluator &e, const Value &v, const Value *other) {
    return equal(v, operand(other), e.meter());
}
bool is_not_equal(Evaluator &e, const Value &v, const Value *other) {
    return !equal(v, operand(other), e.meter());
}
bool is_case(Evaluator &e, const Value &v, std::string_view method) {
    const Value text = e.string(e.text_of(v));
    return truth(call_method(e, text, std::string(method), {}));
}

const std::map<std::string, Check, std::less<>> &tests() {
    static const auto is_defined = [](Evaluator &, const Value &v, const Value *) {
        return !v.is(Kind::undefined);
    };
    static const auto is_in = [](Evaluator &e, const Value &v, const Value *in) {
        return contains(e, operand(in), v);
    };
    static const auto is_sequence = [](Evaluator &, const Value &v, const Value *) {
        return is_countable(v) && !(v.is(Kind::list) && v.list().form == ListForm::generator);
    };
    static const std::map<std::string, Check, std::less<>> all{
        {"defined", is_defined},
        {"undefined", is_kind<Kind::undefined>},
        {"none", is_kind<Kind::none>},
        {"boolean", is_kind<Kind::boolean>},
        {"integer", is_kind<Kind::integer>},
        {"float", is_kind<Kind::real>},
        {"number", is_kind<Kind::boolean, Kind::integer, Kind::real>},
        {"string", is_kind<Kind::string>},
        {"mapping", is_kind<Kind::dict>},
        {"sequence", is_sequence},
        {"iterable", [](Evaluator &, const Value &v, const Value *) { return is_countable(v); }},
        {"callable", [](Evaluator &, const Value &v, const Value *) { return is_function(v); }},
        {"true", [](Evaluator &, const Value &v,
                    const Value *) { return v.is(Kind::boolean) && v.flag(); }},
        {"false", [](Evaluator &, const Value &v,
                     const Value *) { return v.is(Kind::boolean) && !v.flag(); }},
        {"odd", [](Evaluator &, const Value &v, const Value *) { return integer_of(v) % 2 != 0; }},
        {"even", [](Evaluator &, const Value &v, const Value *) { return integer_of(v) % 2 == 0; }},
        {"divisibleby",
         [](Evaluator &e, const Value &v, const Value *by) {
             return !truth(binary(e, Op::modulo, Value::integer(integer_of(v)),
                                  Value::integer(integer_of(operand(by)))));
         }},
        {"upper",
         [](Evaluator &e, const Value &v, const Value *) { return is_case(e, v, "isupper"); }},
        {"lower",
         [](Evaluator &e, const Value &v, const Value *) { return is_case(e, v, "islower"); }},
        {"sameas",
         [](Evaluator &e, const Value &v, const Value *other) {
             return v.kind() == operand(other).kind() &&
                    (v.identity() != nullptr ? v.identity() == other->identity()
                                             : equal(v, *other, e.meter()));
         }},
        {"in", is_in},
        {"eq", is_equal},
        {"equalto", is_equal},
        {"==", is_equal},
        {"ne", is_not_equal},
        {"!=", is_not_equal},
        {"lt", is_order<-1, -1>},
        {"lessthan", is_order<-1, -1>},
        {"<", is_order<-1, -1>},
        {"le", is_order<-1, 0>},
        {"<=", is_order<-1, 0>},
        {"gt", is_order<1, 1>},
        {"greaterthan", is_order<1, 1>},
        {">", is_order<1, 1>},
        {"ge", is_order<0, 1>},
        {">=", is_order<0, 1>},
    };
    return all;
}

} // namespace

bool call_test(Evaluator &evaluator, const std::string &name, const Value &input,
               Arguments arguments) {
    evaluator.meter().steps(1);
    const auto found = tests().find(name);
    if (found == tests().end()) {
        std::vector<std::string> names;
        for (const auto &test : tests()) names.push_back(test.first);
        fail("unknown test {}{}; the tests are {}", quote_text(name), did_you_mean(name, names),
             fmt::join(names, ", "));
    }
    if (arguments.positional.size() > 1 || !arguments.named.empty())
        fail("the test {} takes at most one argument", name);
    return found->second(evaluator, input,
                         arguments.positional.empty() ? nullptr : &arguments.positional.front());
}

} // namespace keel::jinja
