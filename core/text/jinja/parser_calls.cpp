// Reads the arguments of calls, filters and tests.
#include "text/jinja/parser_base.hpp"

#include <algorithm>

namespace keel::jinja {

void ExprParser::arguments(Expr &call) {
    expect_symbol("(");
    while (!is_symbol(")")) {
        if (is_symbol("*") || is_symbol("**")) refuse("arguments with * or ** are not supported");
        if (now().type == TokenType::name && next().type == TokenType::symbol &&
            next().text == "=") {
            call.keywords.push_back(take().text);
            take();
        } else if (!call.keywords.empty()) {
            refuse("expected an argument with a name, found one without a name after it");
        }
        call.kids.push_back(expression());
        call.height = std::max(call.height, call.kids.back()->height + 1);
        if (!skip_symbol(",")) break;
    }
    expect_symbol(")");
    if (call.height > limits_.nesting)
        refuse(fmt::format("calls are nested deeper than {} levels, which is the limit",
                           limits_.nesting));
}

ExprPtr ExprParser::filters_tests_calls(ExprPtr of) {
    for (;;) {
        if (is_symbol("|")) {
            of = filters(std::move(of));
        } else if (is_name("is")) {
            of = test(std::move(of));
        } else if (is_symbol("(")) {
            of = node(ExprKind::call, kids_of(std::move(of)), now().line);
            arguments(*of);
        } else {
            return of;
        }
    }
}

ExprPtr ExprParser::filters(ExprPtr of) {
    while (skip_symbol("|")) of = filter_call(std::move(of));
    return of;
}

ExprPtr ExprParser::filter_call(ExprPtr of) {
    const std::uint32_t line = now().line;
    std::string name = expect_name("the name of a filter");
    of = node(ExprKind::filter, kids_of(std::move(of)), line);
    of->name = std::move(name);
    if (is_symbol("(")) arguments(*of);
    return of;
}

ExprPtr ExprParser::test(ExprPtr of) {
    const std::uint32_t line = take().line;
    const bool is_negated = skip_name("not");
    std::string name = expect_name("the name of a test after 'is'");
    ExprPtr out = node(ExprKind::test, kids_of(std::move(of)), line);
    out->name = std::move(name);
    const bool has_operand =
        now().type == TokenType::string || now().type == TokenType::integer ||
        now().type == TokenType::real || is_symbol("[") || is_symbol("{") ||
        (now().type == TokenType::name && !is_name("else") && !is_name("or") && !is_name("and") &&
         !is_name("is") && !is_name("if") && !is_name("in") && !is_name("not"));
    if (is_symbol("(")) {
        arguments(*out);
    } else if (has_operand) {
        out->kids.push_back(postfix(primary()));
        out->height = std::max(out->height, out->kids.back()->height + 1);
    }
    return is_negated ? node(ExprKind::logical_not, kids_of(std::move(out)), line) : std::move(out);
}

} // namespace keel::jinja
