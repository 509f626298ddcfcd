#include "text/jinja/template.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "text/jinja/evaluator.hpp"
#include "text/jinja/lexer.hpp"
#include "text/jinja/parser.hpp"
#include "text/utf8.hpp"

namespace keel::jinja {
namespace {

[[noreturn]] void throw_at_line(const std::string &name, std::uint32_t line, const char *text) {
    throw_error(ErrorKind::input, "{}:{}: {}", printable(name, 400), line, text);
}

// The bytes of strings in the variables of a rendering.
std::uint64_t input_bytes(const Value &value) {
    std::uint64_t bytes = sizeof(Value);
    if (value.is(Kind::string)) bytes += value.bytes().size();
    if (value.is(Kind::list))
        for (const Value &item : value.list().items) bytes += input_bytes(item);
    if (value.is(Kind::dict))
        for (const auto &member : value.dict().members)
            bytes += input_bytes(member.first) + input_bytes(member.second);
    return bytes;
}

} // namespace

Template::Template(std::string_view source, std::string name, const Limits &limits)
    : name_(std::move(name)), limits_(limits) {
    if (source.size() > limits.template_bytes)
        throw_error(ErrorKind::input, "{}: expected a chat template of at most {}, found {}",
                    printable(name_, 400), format_bytes(limits.template_bytes),
                    format_bytes(source.size()));
    try {
        body_ = parse_template(replace_invalid_utf8(source), limits);
    } catch (const LineFailure &failure) {
        throw_at_line(name_, failure.line, failure.what());
    }
}

Text Template::render(const Dict &variables, std::time_t now) const {
    // a long conversation may need more work than a short one
    Limits limits = limits_;
    for (const auto &member : variables.members) {
        const std::uint64_t bytes = input_bytes(member.second);
        limits.bytes += 64 * bytes;
        limits.steps += 4 * bytes;
        limits.output_bytes += 4 * bytes;
    }
    Evaluator evaluator(limits, now);
    try {
        for (const auto &member : variables.members)
            evaluator.set_variable(member.first.bytes(), member.second);
        return evaluator.render(body_);
    } catch (const Failure &failure) {
        throw_at_line(name_, evaluator.line(), failure.what());
    }
}

} // namespace keel::jinja
