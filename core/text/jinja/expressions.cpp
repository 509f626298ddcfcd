// Evaluates expressions.
#include "base/display.hpp"
#include "text/jinja/evaluator.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace keel::jinja {
namespace {

// The index of an element as Python counts: -1 is the last one. Negative if there is none.
std::int64_t place_of(std::int64_t index, std::int64_t size) {
    if (index < 0) index += size;
    return index >= 0 && index < size ? index : -1;
}

std::optional<std::int64_t> whole_number(const Value &value) {
    if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.integer();
    return std::nullopt;
}

} // namespace

Value Evaluator::string(Text text) {
    meter_.bytes(text.size() + 96);
    return Value::string(std::move(text));
}

Value Evaluator::list(std::vector<Value> items, ListForm form) {
    meter_.bytes(items.size() * sizeof(Value) + 96);
    meter_.steps(items.size());
    return Value::list(std::move(items), form);
}

Value Evaluator::evaluate(const Expr &e) {
    const Depth depth(*this);
    meter_.steps(1);
    line_ = e.line;
    switch (e.kind) {
    case ExprKind::constant: return e.value;
    case ExprKind::name: return evaluate_name(e.name);
    case ExprKind::list: return list(evaluate_all(e.kids));
    case ExprKind::tuple: return list(evaluate_all(e.kids), ListForm::tuple);
    case ExprKind::dict: return evaluate_dict(e);
    case ExprKind::attribute: return attribute(evaluate(*e.kids[0]), e.name);
    case ExprKind::item: {
        const Value of = evaluate(*e.kids[0]);
        return item(of, evaluate(*e.kids[1]));
    }
    case ExprKind::slice: return evaluate_slice(e);
    case ExprKind::call: return evaluate_call(e);
    case ExprKind::filter: {
        const Value input = evaluate(*e.kids[0]);
        return filter(e.name, input, evaluate_arguments(e));
    }
    case ExprKind::test: {
        const Value input = evaluate(*e.kids[0]);
        return Value::boolean(test(e.name, input, evaluate_arguments(e)));
    }
    case ExprKind::negate:
    case ExprKind::plus: return evaluate_sign(e);
    case ExprKind::logical_not: return Value::boolean(!truth(evaluate(*e.kids[0])));
    case ExprKind::logical_and: {
        Value left = evaluate(*e.kids[0]);
        return truth(left) ? evaluate(*e.kids[1]) : left;
    }
    case ExprKind::logical_or: {
        Value left = evaluate(*e.kids[0]);
        return truth(left) ? left : evaluate(*e.kids[1]);
    }
    case ExprKind::binary: {
        const Value left = evaluate(*e.kids[0]), right = evaluate(*e.kids[1]);
        line_ = e.line;
        return binary(*this, e.op, left, right);
    }
    case ExprKind::compare: return evaluate_compare(e);
    case ExprKind::concat: return evaluate_concat(e);
    case ExprKind::conditional:
        if (truth(evaluate(*e.kids[0]))) return evaluate(*e.kids[1]);
        if (e.kids[2]) return evaluate(*e.kids[2]);
        return Value::undefined("the inline if has no else, and its condition is false");
    case ExprKind::block_text: return string(block_texts_.back());
    }
    return {};
}

Value Evaluator::evaluate_name(const std::string &name) {
    for (const Scope *scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
        meter_.steps(1);
        const auto found = scope->values.find(name);
        if (found != scope->values.end()) return found->second;
    }
    if (has_function(name)) return function_value(name);
    meter_.bytes(name.size() + 96);
    return Value::undefined(fmt::format("'{}' is undefined", printable(name, 60)));
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExprPtr> &kids) {
    std::vector<Value> out;
    out.reserve(kids.size());
    for (const ExprPtr &kid : kids) out.push_back(evaluate(*kid));
    return out;
}

Arguments Evaluator::evaluate_arguments(const Expr &e) {
    Arguments out;
    const std::size_t positional = e.kids.size() - e.keywords.size();
    for (std::size_t i = 1; i < e.kids.size(); ++i) {
        Value value = evaluate(*e.kids[i]);
        if (i < positional)
            out.positional.push_back(std::move(value));
        else
            out.named.emplace_back(e.keywords[i - positional], std::move(value));
    }
    line_ = e.line;
    return out;
}

Value Evaluator::evaluate_call(const Expr &e, const Value *caller) {
    const Value callee = evaluate(*e.kids[0]);
    return call(callee, evaluate_arguments(e), caller);
}

Value Evaluator::evaluate_dict(const Expr &e) {
    auto dict = std::make_shared<Dict>();
    for (std::size_t i = 0; i < e.kids.size(); i += 2) {
        const Value key = evaluate(*e.kids[i]);
        dict->set(key, evaluate(*e.kids[i + 1]));
        meter_.bytes(2 * sizeof(Value) + 128 + (key.is(Kind::string) ? key.bytes().size() : 0));
    }
    return Value::dict(std::move(dict));
}

Value Evaluator::evaluate_concat(const Expr &e) {
    Text out;
    for (const ExprPtr &kid : e.kids) {
        const Text part = text_of(evaluate(*kid));
        meter_.bytes(part.size());
        out.append(part);
    }
    return string(std::move(out));
}

Value Evaluator::evaluate_sign(const Expr &e) {
    const Value value = evaluate(*e.kids[0]);
    if (value.is(Kind::undefined)) fail("{}", value.reason());
    if (!value.is_number()) fail("expected a number after a sign, found {}", type_name(value));
    if (e.kind == ExprKind::plus)
        return value.is(Kind::boolean) ? Value::integer(value.integer()) : value;
    if (value.is(Kind::real)) return Value::real(-value.real());
    return binary(*this, Op::subtract, Value::integer(0), value);
}

bool Evaluator::compare_values(Op op, const Value &a, const Value &b) {
    switch (op) {
    case Op::equal: return equal(a, b, meter_);
    case Op::not_equal: return !equal(a, b, meter_);
    case Op::in: return contains(*this, b, a);
    case Op::not_in: return !contains(*this, b, a);
    default: break;
    }
    // NaN is not less, equal or greater
    if (a.is_number() && b.is_number() && (a.real() != a.real() || b.real() != b.real()))
        return false;
    const int order = compare(a, b, meter_);
    return op == Op::less         ? order < 0
           : op == Op::less_equal ? order <= 0
           : op == Op::greater    ? order > 0
                                  : order >= 0;
}

Value Evaluator::evaluate_compare(const Expr &e) {
    Value left = evaluate(*e.kids[0]);
    for (std::size_t i = 0; i < e.ops.size(); ++i) {
        Value right = evaluate(*e.kids[i + 1]);
        line_ = e.line;
        if (!compare_values(e.ops[i], left, right)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

Value Evaluator::evaluate_slice(const Expr &e) {
    const Value of = evaluate(*e.kids[0]);
    std::array<std::optional<std::int64_t>, 3> given;
    for (std::size_t i = 0; i < 3; ++i) {
        if (!e.kids[i + 1]) continue;
        const Value value = evaluate(*e.kids[i + 1]);
        if (value.is(Kind::none)) continue;
        given[i] = whole_number(value);
        if (!given[i]) return Value::undefined("an index of a slice is not an integer");
    }
    line_ = e.line;
    if (of.is(Kind::undefined)) fail("{}", of.reason());
    if (!of.is(Kind::string) && (!of.is(Kind::list) || of.list().form == ListForm::generator))
        return Value::undefined(fmt::format("a slice of {} is undefined", type_name(of)));
    const std::int64_t step = given[2].value_or(1);
    if (step == 0) fail("the step of a slice is 0");
    const bool is_string = of.is(Kind::string);
    const Text text = is_string ? text_of(of) : Text();
    std::vector<std::size_t> starts; // the first byte of each character, and the end
    if (is_string) {
        meter_.bytes(9 * text.size());
        for (std::size_t at = 0; at < text.size(); at += utf8_length(text.bytes(), at))
            starts.push_back(at);
        starts.push_back(text.size());
    }
    const std::int64_t size = is_string ? std::ssize(starts) - 1 : std::ssize(of.list().items);
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto bound = [&](std::optional<std::int64_t> index, std::int64_t otherwise) {
        if (!index) return otherwise;
        const std::int64_t at = *index < 0 ? *index + size : *index;
        return std::clamp(at, low, high);
    };
    const std::int64_t from = bound(given[0], step > 0 ? low : high),
                       to = bound(given[1], step > 0 ? high : low);
    if (is_string && step == 1) {
        const auto begin = static_cast<std::size_t>(from),
                   end = static_cast<std::size_t>(std::max(from, to));
        return string(text.part(starts[begin], starts[end]));
    }
    Text cut;
    std::vector<Value> items;
    for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
        const auto at = static_cast<std::size_t>(i);
        if (is_string)
            cut.append_part(text, starts[at], starts[at + 1]);
        else
            items.push_back(of.list().items[at]);
        // a step may be so large that i + step overflows
        if (step > 0 ? step >= to - i : step <= to - i) break;
        i += step;
    }
    return is_string ? string(std::move(cut)) : list(std::move(items), of.list().form);
}

Value Evaluator::attribute(const Value &of, const std::string &name) {
    meter_.steps(1);
    switch (of.kind()) {
    case Kind::undefined: fail("{}", of.reason());
    case Kind::space: {
        const auto &values = of.as<Space>().values;
        const auto found = values.find(name);
        if (found != values.end()) return found->second;
        break;
    }
    case Kind::loop: {
        const auto &loop = of.as<Loop>();
        const auto at = static_cast<std::int64_t>(loop.at), size = std::ssize(loop.items);
        if (name == "index") return Value::integer(at + 1);
        if (name == "index0") return Value::integer(at);
        if (name == "revindex") return Value::integer(size - at);
        if (name == "revindex0") return Value::integer(size - at - 1);
        if (name == "first") return Value::boolean(at == 0);
        if (name == "last") return Value::boolean(at + 1 == size);
        if (name == "length") return Value::integer(size);
        // loops inside of loops also have depth 1; only recursive loops count
        if (name == "depth") return Value::integer(1);
        if (name == "depth0") return Value::integer(0);
        if (name == "previtem" && at > 0) return loop.items[loop.at - 1];
        if (name == "nextitem" && at + 1 < size) return loop.items[loop.at + 1];
        if (name == "previtem") return Value::undefined("there is no previous item");
        if (name == "nextitem") return Value::undefined("there is no next item");
        break;
    }
    default: break;
    }
    if (has_method(of, name)) {
        meter_.bytes(96);
        return Value::object(Kind::method, std::make_shared<Method>(of, name));
    }
    if (of.is(Kind::dict))
        if (const Value *member = of.dict().find(name)) return *member;
    if (of.is(Kind::cycler) && name == "current") {
        const auto &cycler = of.as<Cycler>();
        return cycler.items[cycler.at];
    }
    meter_.bytes(name.size() + 128);
    return Value::undefined(
        fmt::format("{} has no attribute '{}'", type_name(of), printable(name, 60)));
}

Value Evaluator::item(const Value &of, const Value &index) {
    meter_.steps(1);
    if (of.is(Kind::undefined)) fail("{}", of.reason());
    if (of.is(Kind::dict)) {
        if (index.is(Kind::string)) meter_.bytes(index.bytes().size());
        if (const Value *member = of.dict().find(index)) return *member;
    } else if (const auto number = whole_number(index); number && of.is(Kind::list)) {
        const auto &items = of.list().items;
        const std::int64_t place = place_of(*number, std::ssize(items));
        if (place >= 0 && of.list().form != ListForm::generator)
            return items[static_cast<std::size_t>(place)];
    } else if (number && of.is(Kind::string)) {
        const Text &text = of.text();
        const std::int64_t place = place_of(*number, length(of, meter_));
        if (place >= 0) {
            std::size_t at = 0;
            for (std::int64_t i = 0; i < place; ++i) at += utf8_length(text.bytes(), at);
            return string(text.part(at, at + utf8_length(text.bytes(), at)));
        }
    }
    if (index.is(Kind::string) && !of.is(Kind::dict)) return attribute(of, index.bytes());
    if (index.is(Kind::string) && has_method(of, index.bytes()))
        return attribute(of, index.bytes());
    const Text shown = to_repr(index, meter_);
    return Value::undefined(
        fmt::format("{} has no element {}", type_name(of), printable(shown.bytes(), 60)));
}

} // namespace keel::jinja
