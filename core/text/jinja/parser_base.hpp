#pragma once

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::jinja {

template <typename... Kids> std::vector<ExprPtr> kids_of(Kids &&...kids) {
    std::vector<ExprPtr> out;
    (out.push_back(std::forward<Kids>(kids)), ...);
    return out;
}

// Reads expressions from the tokens of a template.
class ExprParser {
  public:
    ExprParser(std::vector<LexToken> tokens, const Limits &limits)
        : tokens_(std::move(tokens)), limits_(limits) {}

  protected:
    // `a` or `a, b`. with_if: an inline if is allowed.
    ExprPtr tuple_or_expression(bool with_if);
    ExprPtr expression(bool with_if = true);
    // filters after `of`, which may be NULL for the text of a block
    ExprPtr filters(ExprPtr of);
    ExprPtr filter_call(ExprPtr of);
    ExprPtr unary(bool with_filters);
    ExprPtr primary();

    const LexToken &now() const { return tokens_[at_]; }
    const LexToken &next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    bool is_symbol(std::string_view text) const {
        return now().type == TokenType::symbol && now().text == text;
    }
    bool is_name(std::string_view text) const {
        return now().type == TokenType::name && now().text == text;
    }
    LexToken take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
    bool skip_symbol(std::string_view text) { return is_symbol(text) ? (take(), true) : false; }
    bool skip_name(std::string_view text) { return is_name(text) ? (take(), true) : false; }
    void expect_symbol(std::string_view text);
    std::string expect_name(std::string_view what);
    void expect(TokenType type, std::string_view what);
    std::string found() const; // the current token, for messages
    [[noreturn]] void refuse(const std::string &text) const { throw LineFailure(now().line, text); }

    // Counts a level of nesting while it lives.
    struct Level {
        explicit Level(ExprParser &parser);
        ~Level() { --parser_.level_; }
        Level(const Level &) = delete;
        Level &operator=(const Level &) = delete;
        ExprParser &parser_;
    };
    ExprPtr node(ExprKind kind, std::vector<ExprPtr> kids, std::uint32_t line) const;

    std::set<std::string, std::less<>> names_; // all names that expressions read

  private:
    ExprPtr logical_or();
    ExprPtr logical_and();
    ExprPtr logical_not();
    ExprPtr comparison();
    ExprPtr sum();
    ExprPtr concatenation();
    ExprPtr product();
    ExprPtr power();
    ExprPtr postfix(ExprPtr of);
    ExprPtr filters_tests_calls(ExprPtr of);
    ExprPtr test(ExprPtr of);
    ExprPtr subscript(ExprPtr of);
    ExprPtr binary_chain(ExprPtr (ExprParser::*part)(),
                         std::initializer_list<std::pair<std::string_view, Op>> ops);
    void arguments(Expr &call);
    ExprPtr list_or_tuple(std::string_view close, ExprKind kind);
    ExprPtr dict();
    ExprPtr number();
    bool ends_tuple() const;

    std::vector<LexToken> tokens_;
    Limits limits_;
    std::size_t at_ = 0;
    std::uint32_t level_ = 0;
};

} // namespace keel::jinja
