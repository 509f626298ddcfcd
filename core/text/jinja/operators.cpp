// Python's operators.
#include "text/jinja/evaluator.hpp"
#include "text/jinja/string_methods.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace keel::jinja {
namespace {

[[noreturn]] void too_large() { fail("an integer does not fit in 64 bits"); }

const char *symbol(Op op) {
    switch (op) {
    case Op::add: return "+";
    case Op::subtract: return "-";
    case Op::multiply: return "*";
    case Op::divide: return "/";
    case Op::floor_divide: return "//";
    case Op::modulo: return "%";
    case Op::power: return "**";
    default: return "?";
    }
}

Value real_result(Op op, double a, double b) {
    switch (op) {
    case Op::add: return Value::real(a + b);
    case Op::subtract: return Value::real(a - b);
    case Op::multiply: return Value::real(a * b);
    case Op::power: {
        const double result = std::pow(a, b);
        if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
            fail("the result of ** is not a real number");
        return Value::real(result);
    }
    default: break;
    }
    if (b == 0) fail("division by zero");
    if (op == Op::divide) return Value::real(a / b);
    double rest = std::fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    if (op == Op::modulo) return Value::real(rest);
    return Value::real(std::floor((a - rest) / b + 0.5));
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) fail("division by zero");
        return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
    std::int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return Value::integer(result);
}

Value integer_result(Op op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    switch (op) {
    case Op::add:
        if (__builtin_add_overflow(a, b, &result)) too_large();
        return Value::integer(result);
    case Op::subtract:
        if (__builtin_sub_overflow(a, b, &result)) too_large();
        return Value::integer(result);
    case Op::multiply:
        if (__builtin_mul_overflow(a, b, &result)) too_large();
        return Value::integer(result);
    case Op::power: return integer_power(a, b);
    default: break;
    }
    if (b == 0) fail("division by zero");
    if (op == Op::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
        if (op == Op::modulo) return Value::integer(0);
        if (a == std::numeric_limits<std::int64_t>::min()) too_large();
        return Value::integer(-a);
    }
    const std::int64_t rest = a % b;
    const bool is_moved = rest != 0 && (rest < 0) != (b < 0);
    if (op == Op::modulo) return Value::integer(is_moved ? rest + b : rest);
    return Value::integer(a / b - (is_moved ? 1 : 0));
}

Value repeated(Evaluator &evaluator, const Value &of, std::int64_t times) {
    const std::uint64_t count = times > 0 ? static_cast<std::uint64_t>(times) : 0;
    const std::uint64_t size =
        of.is(Kind::string) ? of.bytes().size() : of.list().items.size() * sizeof(Value);
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > (std::uint64_t{1} << 40))
        bytes = std::uint64_t{1} << 40; // more than any limit
    evaluator.meter().bytes(bytes);
    if (bytes == 0) // also for a huge count of nothing
        return of.is(Kind::string) ? evaluator.string(Text()) : evaluator.list({}, of.list().form);
    evaluator.meter().steps(count);
    if (of.is(Kind::string)) {
        Text out;
        for (std::uint64_t i = 0; i < count; ++i) out.append(of.text());
        return evaluator.string(std::move(out));
    }
    std::vector<Value> items;
    for (std::uint64_t i = 0; i < count; ++i)
        items.insert(items.end(), of.list().items.begin(), of.list().items.end());
    return evaluator.list(std::move(items), of.list().form);
}

// Adds two strings of which one or both come from the filter safe.
Value add_safe(Evaluator &evaluator, const Value &a, const Value &b) {
    Text out;
    for (const Value *part : {&a, &b}) {
        if (part->is_safe()) {
            out.append(part->text());
            continue;
        }
        evaluator.meter().bytes(5 * part->bytes().size());
        part->text().each_run([&](std::string_view run, bool is_data) {
            for (const char c : run) {
                constexpr std::string_view marks = "&<>'\"";
                constexpr std::array<std::string_view, 5> escaped{"&amp;", "&lt;", "&gt;", "&#39;",
                                                                  "&#34;"};
                const std::size_t place = marks.find(c);
                out.append(place == std::string_view::npos ? std::string_view(&c, 1)
                                                           : escaped[place],
                           is_data);
            }
        });
    }
    evaluator.meter().bytes(out.size() + 96);
    return Value::safe_string(std::move(out));
}

bool is_sequence(const Value &value) {
    return value.is(Kind::string) ||
           (value.is(Kind::list) && value.list().form != ListForm::generator);
}

} // namespace

Value binary(Evaluator &evaluator, Op op, const Value &a, const Value &b) {
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return real_result(op, a.real(), b.real());
        return integer_result(op, a.integer(), b.integer());
    }
    for (const Value *value : {&a, &b})
        if (value->is(Kind::undefined) && !(op == Op::modulo && a.is(Kind::string)))
            fail("{}", value->reason());
    if (op == Op::add && a.is(Kind::string) && b.is(Kind::string)) {
        evaluator.meter().bytes(a.bytes().size() + b.bytes().size());
        if (a.is_safe() || b.is_safe()) return add_safe(evaluator, a, b);
        Text out = a.text();
        out.append(b.text());
        return evaluator.string(std::move(out));
    }
    if (op == Op::add && is_sequence(a) && is_sequence(b) && a.kind() == b.kind() &&
        a.list().form == b.list().form) {
        std::vector<Value> items = elements(a, evaluator.meter());
        const std::vector<Value> more = elements(b, evaluator.meter());
        items.insert(items.end(), more.begin(), more.end());
        return evaluator.list(std::move(items), a.list().form);
    }
    const auto is_count = [](const Value &v) { return v.is(Kind::integer) || v.is(Kind::boolean); };
    if (op == Op::multiply && is_sequence(a) && is_count(b))
        return repeated(evaluator, a, b.integer());
    if (op == Op::multiply && is_count(a) && is_sequence(b))
        return repeated(evaluator, b, a.integer());
    if (op == Op::modulo && a.is(Kind::string)) return percent_format(evaluator, a.text(), b);
    fail("expected two numbers, two strings or two lists for {}, found {} and {}", symbol(op),
         type_name(a), type_name(b));
}

bool contains(Evaluator &evaluator, const Value &in, const Value &what) {
    Meter &meter = evaluator.meter();
    switch (in.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
        if (what.is(Kind::undefined)) fail("{}", what.reason());
        if (!what.is(Kind::string))
            fail("expected a string before 'in' with a string, found {}", type_name(what));
        return find_text(in.bytes(), what.bytes(), 0, meter) != std::string::npos;
    case Kind::list:
        for (const Value &item : in.list().items)
            if (equal(item, what, meter)) return true;
        return false;
    case Kind::dict:
        if (what.is(Kind::string)) meter.bytes(what.bytes().size());
        return in.dict().find(what) != nullptr;
    default: fail("expected a list, a dict or a string after 'in', found {}", type_name(in));
    }
}

} // namespace keel::jinja
