// Reads statements.
#include "text/jinja/parser.hpp"

#include "base/display.hpp"
#include "base/suggest.hpp"
#include "text/jinja/parser_base.hpp"

#include <algorithm>

namespace keel::jinja {
namespace {

const std::vector<std::string> statements{"if",       "for",        "set",  "macro",
                                          "call",     "filter",     "with", "break",
                                          "continue", "generation", "raw"};

class Parser : public ExprParser {
  public:
    using ExprParser::ExprParser;

    Body parse() {
        Body all = body({});
        if (now().type != TokenType::end) refuse(fmt::format("unexpected tag '{}'", next().text));
        return all;
    }

  private:
    // Reads until a tag with one of the names. Stops at this tag, after {%.
    Body body(std::initializer_list<std::string_view> ends) {
        const Level level(*this);
        Body out;
        for (;;) {
            const std::uint32_t line = now().line;
            if (now().type == TokenType::data) {
                Stmt text;
                text.line = line;
                text.text = take().text;
                out.push_back(std::move(text));
            } else if (now().type == TokenType::output_begin) {
                take();
                Stmt output;
                output.kind = StmtKind::output;
                output.line = line;
                output.exprs.push_back(tuple_or_expression(true));
                expect(TokenType::output_end, "}}");
                out.push_back(std::move(output));
            } else if (now().type == TokenType::block_begin) {
                take();
                if (now().type == TokenType::name &&
                    std::ranges::find(ends, now().text) != ends.end())
                    return out;
                out.push_back(statement());
            } else {
                if (ends.size() != 0)
                    refuse(
                        fmt::format("expected {{% {} %}}, found {}", *(ends.end() - 1), found()));
                return out;
            }
        }
    }

    // Reads until {% end %}, and the tag itself.
    Body body_to(std::string_view end) {
        Body out = body({end});
        take();
        end_tag();
        return out;
    }
    void end_tag() { expect(TokenType::block_end, "%}"); }

    Stmt statement() {
        Stmt out;
        out.line = now().line;
        const std::string name = expect_name("the name of a statement");
        if (name == "if") {
            branch(out);
        } else if (name == "for") {
            loop(out);
        } else if (name == "set") {
            set(out);
        } else if (name == "macro") {
            macro(out);
        } else if (name == "call") {
            call_block(out);
        } else if (name == "filter") {
            out.kind = StmtKind::filter_block;
            out.exprs.push_back(filters(filter_call(block_text())));
            end_tag();
            out.bodies.push_back(body_to("endfilter"));
        } else if (name == "with") {
            with(out);
        } else if (name == "generation") {
            out.kind = StmtKind::pass;
            end_tag();
            out.bodies.push_back(body_to("endgeneration"));
        } else if (name == "break" || name == "continue") {
            if (loops_ == 0) refuse(fmt::format("{{% {} %}} is outside of a loop", name));
            out.kind = name == "break" ? StmtKind::leave_loop : StmtKind::next_round;
            end_tag();
        } else {
            throw LineFailure(
                out.line, fmt::format("unknown or misplaced statement {}{}; the statements are {}",
                                      quote_text(name), did_you_mean(name, statements),
                                      fmt::join(statements, ", ")));
        }
        return out;
    }

    ExprPtr block_text() { return node(ExprKind::block_text, {}, now().line); }

    void branch(Stmt &out) {
        out.kind = StmtKind::branch;
        for (;;) {
            out.exprs.push_back(tuple_or_expression(false));
            end_tag();
            out.bodies.push_back(body({"elif", "else", "endif"}));
            const std::string next = take().text;
            if (next == "elif") continue;
            end_tag();
            if (next == "else") out.bodies.push_back(body_to("endif"));
            return;
        }
    }

    // Reads `a`, `a, b` or `ns.a`.
    Target target(bool may_be_attribute) {
        const Level level(*this);
        Target out;
        do {
            Target part;
            if (skip_symbol("(")) {
                part = target(may_be_attribute);
                expect_symbol(")");
            } else {
                part.name = expect_name("the name of a variable");
                if (part.name == "true" || part.name == "false" || part.name == "none" ||
                    part.name == "True" || part.name == "False" || part.name == "None")
                    refuse(fmt::format("cannot assign to '{}'", part.name));
                if (may_be_attribute && skip_symbol("."))
                    part.attribute = expect_name("the name of an attribute");
            }
            out.parts.push_back(std::move(part));
        } while (skip_symbol(",") && !is_name("in") && !is_symbol("=") && !is_symbol(")"));
        if (out.parts.size() > 1) return out;
        Target only = std::move(out.parts.front());
        return only;
    }

    void loop(Stmt &out) {
        out.kind = StmtKind::loop;
        out.targets.push_back(target(false));
        if (!skip_name("in"))
            refuse(fmt::format("expected 'in' in {{% for %}}, found {}", found()));
        out.exprs.push_back(tuple_or_expression(false));
        out.exprs.push_back(skip_name("if") ? expression() : nullptr);
        if (is_name("recursive")) refuse("recursive loops are not supported");
        end_tag();
        ++loops_;
        out.bodies.push_back(body({"else", "endfor"}));
        --loops_;
        const bool has_else = take().text == "else";
        end_tag();
        if (has_else) out.bodies.push_back(body_to("endfor"));
    }

    void set(Stmt &out) {
        out.targets.push_back(target(true));
        if (skip_symbol("=")) {
            out.kind = StmtKind::set;
            out.exprs.push_back(tuple_or_expression(true));
            end_tag();
            return;
        }
        out.kind = StmtKind::set_block;
        out.exprs.push_back(filters(block_text()));
        end_tag();
        out.bodies.push_back(body_to("endset"));
    }

    void parameters(Stmt &out) {
        expect_symbol("(");
        bool has_default = false;
        while (!is_symbol(")")) {
            out.parameters.push_back(expect_name("the name of a parameter"));
            if (skip_symbol("=")) {
                has_default = true;
                out.exprs.push_back(expression());
            } else if (has_default) {
                refuse("expected a default value, because an earlier parameter has one");
            }
            if (!skip_symbol(",")) break;
        }
        expect_symbol(")");
    }

    // Reads the body of a macro, and records whether it uses the special variables.
    void macro_body(Stmt &out, std::string_view end) {
        const auto outer_names = std::exchange(names_, {});
        const int outer_loops = std::exchange(loops_, 0);
        out.bodies.push_back(body_to(end));
        loops_ = outer_loops;
        out.uses_varargs = names_.contains("varargs");
        out.uses_kwargs = names_.contains("kwargs");
        out.uses_caller = names_.contains("caller");
        names_.insert(outer_names.begin(), outer_names.end());
    }

    void macro(Stmt &out) {
        out.kind = StmtKind::macro;
        out.name = expect_name("the name of a macro");
        parameters(out);
        end_tag();
        macro_body(out, "endmacro");
    }

    void call_block(Stmt &out) {
        out.kind = StmtKind::call_block;
        out.name = "caller";
        out.exprs.push_back(nullptr);
        if (is_symbol("(")) parameters(out);
        out.exprs.front() = expression();
        if (out.exprs.front()->kind != ExprKind::call)
            refuse("expected a call of a macro in {% call %}");
        end_tag();
        macro_body(out, "endcall");
    }

    void with(Stmt &out) {
        out.kind = StmtKind::scope;
        while (now().type != TokenType::block_end) {
            out.targets.push_back(target(false));
            expect_symbol("=");
            out.exprs.push_back(expression());
            if (!skip_symbol(",")) break;
        }
        end_tag();
        out.bodies.push_back(body_to("endwith"));
    }

    int loops_ = 0; // loops around the current statement
};

} // namespace

Body parse_template(std::string_view source, const Limits &limits) {
    return Parser(split_template(source), limits).parse();
}

} // namespace keel::jinja
