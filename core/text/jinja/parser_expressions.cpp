// Reads expressions. The precedence of the operators is Jinja's.
#include "text/jinja/parser_base.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <charconv>

namespace keel::jinja {

ExprParser::Level::Level(ExprParser &parser) : parser_(parser) {
    if (++parser_.level_ > parser_.limits_.nesting) {
        --parser_.level_;
        parser_.refuse(fmt::format("expressions and statements are nested deeper than {} levels, "
                                   "which is the limit",
                                   parser_.limits_.nesting));
    }
}

std::string ExprParser::found() const {
    switch (now().type) {
    case TokenType::end: return "the end of the template";
    case TokenType::data: return "text";
    case TokenType::output_begin:
    case TokenType::output_end:
    case TokenType::block_begin:
    case TokenType::block_end: return now().text;
    case TokenType::string: return "the string " + quote_text(now().text);
    default: return quote_text(now().text);
    }
}

void ExprParser::expect_symbol(std::string_view text) {
    if (!skip_symbol(text)) refuse(fmt::format("expected '{}', found {}", text, found()));
}

void ExprParser::expect(TokenType type, std::string_view what) {
    if (now().type != type) refuse(fmt::format("expected {}, found {}", what, found()));
    take();
}

std::string ExprParser::expect_name(std::string_view what) {
    if (now().type != TokenType::name) refuse(fmt::format("expected {}, found {}", what, found()));
    return take().text;
}

ExprPtr ExprParser::node(ExprKind kind, std::vector<ExprPtr> kids, std::uint32_t line) const {
    auto out = std::make_unique<Expr>();
    out->kind = kind;
    out->line = line;
    for (const ExprPtr &kid : kids)
        if (kid) out->height = std::max(out->height, kid->height + 1);
    if (out->height > limits_.nesting)
        throw LineFailure(line, fmt::format("an expression has more than {} operators in a row, "
                                            "which is the limit",
                                            limits_.nesting));
    out->kids = std::move(kids);
    return out;
}

bool ExprParser::ends_tuple() const {
    return now().type == TokenType::output_end || now().type == TokenType::block_end ||
           is_symbol(")") || is_name("recursive");
}

ExprPtr ExprParser::tuple_or_expression(bool with_if) {
    const std::uint32_t line = now().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (!ends_tuple() || items.empty()) {
        items.push_back(expression(with_if));
        if (!is_symbol(",")) break;
        is_tuple = true;
        take();
    }
    if (!is_tuple) return std::move(items.front());
    return node(ExprKind::tuple, std::move(items), line);
}

ExprPtr ExprParser::expression(bool with_if) {
    const Level level(*this);
    ExprPtr value = logical_or();
    while (with_if && is_name("if")) {
        const std::uint32_t line = take().line;
        ExprPtr condition = logical_or();
        ExprPtr otherwise;
        if (skip_name("else")) otherwise = expression();
        value = node(ExprKind::conditional,
                     kids_of(std::move(condition), std::move(value), std::move(otherwise)), line);
    }
    return value;
}

ExprPtr ExprParser::logical_or() {
    ExprPtr left = logical_and();
    while (is_name("or")) {
        const std::uint32_t line = take().line;
        ExprPtr right = logical_and();
        left = node(ExprKind::logical_or, kids_of(std::move(left), std::move(right)), line);
    }
    return left;
}

ExprPtr ExprParser::logical_and() {
    ExprPtr left = logical_not();
    while (is_name("and")) {
        const std::uint32_t line = take().line;
        ExprPtr right = logical_not();
        left = node(ExprKind::logical_and, kids_of(std::move(left), std::move(right)), line);
    }
    return left;
}

ExprPtr ExprParser::logical_not() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    const std::uint32_t line = take().line;
    return node(ExprKind::logical_not, kids_of(logical_not()), line);
}

ExprPtr ExprParser::comparison() {
    const std::uint32_t line = now().line;
    std::vector<ExprPtr> parts = kids_of(sum());
    std::vector<Op> ops;
    for (;;) {
        Op op = Op::none;
        for (const auto &[text, symbol] : {std::pair{"==", Op::equal},
                                           {"!=", Op::not_equal},
                                           {"<=", Op::less_equal},
                                           {">=", Op::greater_equal},
                                           {"<", Op::less},
                                           {">", Op::greater}})
            if (is_symbol(text)) op = symbol;
        if (is_name("in")) op = Op::in;
        if (is_name("not") && next().type == TokenType::name && next().text == "in") {
            op = Op::not_in;
            take();
        }
        if (op == Op::none) break;
        take();
        ops.push_back(op);
        parts.push_back(sum());
    }
    if (ops.empty()) return std::move(parts.front());
    ExprPtr out = node(ExprKind::compare, std::move(parts), line);
    out->ops = std::move(ops);
    return out;
}

ExprPtr ExprParser::binary_chain(ExprPtr (ExprParser::*part)(),
                                 std::initializer_list<std::pair<std::string_view, Op>> ops) {
    ExprPtr left = (this->*part)();
    for (;;) {
        Op op = Op::none;
        for (const auto &[text, symbol] : ops)
            if (is_symbol(text)) op = symbol;
        if (op == Op::none) return left;
        const std::uint32_t line = take().line;
        ExprPtr right = (this->*part)();
        left = node(ExprKind::binary, kids_of(std::move(left), std::move(right)), line);
        left->op = op;
    }
}

ExprPtr ExprParser::sum() {
    return binary_chain(&ExprParser::concatenation, {{"+", Op::add}, {"-", Op::subtract}});
}

ExprPtr ExprParser::concatenation() {
    const std::uint32_t line = now().line;
    std::vector<ExprPtr> parts = kids_of(product());
    while (skip_symbol("~")) parts.push_back(product());
    if (parts.size() == 1) return std::move(parts.front());
    return node(ExprKind::concat, std::move(parts), line);
}

ExprPtr ExprParser::product() {
    return binary_chain(
        &ExprParser::power,
        {{"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}});
}

ExprPtr ExprParser::power() {
    ExprPtr left = unary(true);
    while (is_symbol("**")) {
        const std::uint32_t line = take().line;
        ExprPtr right = unary(true);
        left = node(ExprKind::binary, kids_of(std::move(left), std::move(right)), line);
        left->op = Op::power;
    }
    return left;
}

ExprPtr ExprParser::unary(bool with_filters) {
    const Level level(*this);
    ExprPtr value;
    if (is_symbol("-") || is_symbol("+")) {
        const LexToken sign = take();
        value = node(sign.text == "-" ? ExprKind::negate : ExprKind::plus, kids_of(unary(false)),
                     sign.line);
    } else {
        value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters_tests_calls(std::move(value)) : std::move(value);
}

ExprPtr ExprParser::primary() {
    const std::uint32_t line = now().line;
    switch (now().type) {
    case TokenType::name: {
        const std::string name = take().text;
        auto out = node(ExprKind::constant, {}, line);
        if (name == "true" || name == "True" || name == "false" || name == "False") {
            out->value = Value::boolean(name == "true" || name == "True");
        } else if (name == "none" || name == "None") {
            out->value = Value::none();
        } else {
            out->kind = ExprKind::name;
            out->name = name;
            names_.insert(name);
        }
        return out;
    }
    case TokenType::string: {
        std::string text;
        while (now().type == TokenType::string) text += take().text;
        auto out = node(ExprKind::constant, {}, line);
        out->value = Value::string(std::move(text));
        return out;
    }
    case TokenType::integer:
    case TokenType::real: return number();
    default: break;
    }
    if (skip_symbol("(")) {
        if (skip_symbol(")")) return node(ExprKind::tuple, {}, line);
        ExprPtr inner = tuple_or_expression(true);
        expect_symbol(")");
        return inner;
    }
    if (skip_symbol("[")) return list_or_tuple("]", ExprKind::list);
    if (skip_symbol("{")) return dict();
    refuse(fmt::format("expected an expression, found {}", found()));
}

ExprPtr ExprParser::number() {
    const LexToken token = take();
    auto out = node(ExprKind::constant, {}, token.line);
    const char *begin = token.text.data(), *end = begin + token.text.size();
    std::from_chars_result result{};
    if (token.type == TokenType::integer) {
        std::int64_t value = 0;
        result = std::from_chars(begin, end, value);
        out->value = Value::integer(value);
    } else {
        double value = 0;
        result = std::from_chars(begin, end, value);
        out->value = Value::real(value);
    }
    if (result.ec != std::errc() || result.ptr != end)
        throw LineFailure(token.line, fmt::format("expected a number of at most 64 bits, found {}",
                                                  quote_text(token.text)));
    return out;
}

ExprPtr ExprParser::list_or_tuple(std::string_view close, ExprKind kind) {
    const std::uint32_t line = now().line;
    std::vector<ExprPtr> items;
    while (!is_symbol(close)) {
        items.push_back(expression());
        if (!skip_symbol(",")) break;
    }
    expect_symbol(close);
    return node(kind, std::move(items), line);
}

ExprPtr ExprParser::dict() {
    const std::uint32_t line = now().line;
    std::vector<ExprPtr> parts;
    while (!is_symbol("}")) {
        parts.push_back(expression());
        expect_symbol(":");
        parts.push_back(expression());
        if (!skip_symbol(",")) break;
    }
    expect_symbol("}");
    return node(ExprKind::dict, std::move(parts), line);
}

ExprPtr ExprParser::postfix(ExprPtr of) {
    for (;;) {
        const std::uint32_t line = now().line;
        if (skip_symbol(".")) {
            if (now().type == TokenType::integer) {
                ExprPtr index = number();
                of = node(ExprKind::item, kids_of(std::move(of), std::move(index)), line);
                continue;
            }
            std::string name = expect_name("the name of an attribute after '.'");
            of = node(ExprKind::attribute, kids_of(std::move(of)), line);
            of->name = std::move(name);
        } else if (skip_symbol("[")) {
            of = subscript(std::move(of));
        } else if (is_symbol("(")) {
            of = node(ExprKind::call, kids_of(std::move(of)), line);
            arguments(*of);
        } else {
            return of;
        }
    }
}

ExprPtr ExprParser::subscript(ExprPtr of) {
    const std::uint32_t line = now().line;
    const auto ends = [&] { return is_symbol(":") || is_symbol("]"); };
    std::vector<ExprPtr> parts = kids_of(std::move(of));
    parts.push_back(ends() ? nullptr : expression());
    if (!is_symbol(":")) {
        if (!parts[1]) refuse("expected an index, found ']'");
        expect_symbol("]");
        return node(ExprKind::item, std::move(parts), line);
    }
    take();
    parts.push_back(ends() ? nullptr : expression());
    const bool has_step = skip_symbol(":");
    parts.push_back(!has_step || ends() ? nullptr : expression());
    expect_symbol("]");
    return node(ExprKind::slice, std::move(parts), line);
}

} // namespace keel::jinja
