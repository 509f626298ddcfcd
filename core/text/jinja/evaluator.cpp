// Runs the statements of a template.
#include "text/jinja/evaluator.hpp"

#include "base/display.hpp"

#include <algorithm>

namespace keel::jinja {

Evaluator::Depth::Depth(Evaluator &of) : of_(of) {
    if (++of.depth_ > of.meter_.limits().depth) {
        --of.depth_;
        fail("the template nests more than {} evaluations, which is the limit",
             of.meter_.limits().depth);
    }
}

Evaluator::Evaluator(const Limits &limits, std::time_t now)
    : meter_(limits), now_(now), scope_(std::make_shared<Scope>()) {}

Evaluator::~Evaluator() {
    // The values are moved out first: they may hold the last owner of another object.
    for (const auto &space : spaces_) {
        const auto values = std::move(space->values);
        space->values.clear();
    }
    for (const auto &scope : macro_scopes_) {
        const auto values = std::move(scope->values);
        scope->values.clear();
    }
}

void Evaluator::set_variable(const std::string &name, Value value) {
    scope_->values.insert_or_assign(name, std::move(value));
}

Text Evaluator::render(const Body &body) {
    Text out;
    run(body, out);
    return out;
}

void Evaluator::write(Text &out, const Text &text) {
    if (out.size() + text.size() > meter_.limits().output_bytes)
        fail("the output is longer than {} bytes, which is the limit",
             meter_.limits().output_bytes);
    meter_.bytes(text.size());
    out.append(text);
}

void Evaluator::write_value(Text &out, const Value &value) {
    if (value.is(Kind::string)) return write(out, value.text());
    write(out, text_of(value));
}

Evaluator::Flow Evaluator::run(const Body &body, Text &out) {
    const Depth depth(*this);
    for (const Stmt &statement : body) {
        line_ = statement.line;
        meter_.steps(1);
        if (const Flow flow = run_statement(statement, out); flow != Flow::normal) return flow;
    }
    return Flow::normal;
}

Evaluator::Flow Evaluator::run_statement(const Stmt &s, Text &out) {
    switch (s.kind) {
    case StmtKind::text: write(out, Text(s.text, false)); break;
    case StmtKind::output: write_value(out, evaluate(*s.exprs[0])); break;
    case StmtKind::branch: return run_branch(s, out);
    case StmtKind::loop: return run_loop(s, out);
    case StmtKind::set: assign(s.targets[0], evaluate(*s.exprs[0])); break;
    case StmtKind::set_block:
    case StmtKind::filter_block: run_text_block(s, out); break;
    case StmtKind::macro: scope_->values.insert_or_assign(s.name, make_macro(s)); break;
    case StmtKind::call_block: run_call_block(s, out); break;
    case StmtKind::scope: return run_scoped(s, s.bodies[0], out);
    case StmtKind::pass: return run_scoped(s, s.bodies[0], out);
    case StmtKind::leave_loop: return Flow::leave_loop;
    case StmtKind::next_round: return Flow::next_round;
    }
    return Flow::normal;
}

Evaluator::Flow Evaluator::run_branch(const Stmt &s, Text &out) {
    for (std::size_t i = 0; i < s.exprs.size(); ++i)
        if (truth(evaluate(*s.exprs[i]))) return run(s.bodies[i], out);
    return s.bodies.size() > s.exprs.size() ? run(s.bodies.back(), out) : Flow::normal;
}

// Runs a body in a new scope, with the values of {% with %}.
Evaluator::Flow Evaluator::run_scoped(const Stmt &s, const Body &body, Text &out) {
    std::vector<Value> values;
    for (const ExprPtr &e : s.exprs) values.push_back(evaluate(*e));
    const auto outer = scope_;
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    meter_.bytes(sizeof(Scope));
    for (std::size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i]);
    const Flow flow = run(body, out);
    scope_ = outer;
    return flow;
}

Evaluator::Flow Evaluator::run_loop(const Stmt &s, Text &out) {
    std::vector<Value> items = elements(evaluate(*s.exprs[0]), meter_);
    const auto outer = scope_;
    if (s.exprs[1]) {
        std::vector<Value> chosen;
        for (const Value &item : items) {
            scope_ = std::make_shared<Scope>(Scope{outer, {}});
            meter_.bytes(sizeof(Scope));
            assign(s.targets[0], item);
            if (truth(evaluate(*s.exprs[1]))) chosen.push_back(item);
        }
        items = std::move(chosen);
    }
    const auto loop = std::make_shared<Loop>();
    for (const Value &item : items)
        loop->depth = std::max(loop->depth, checked_depth(item.depth() + 1));
    loop->items = std::move(items);
    Flow flow = Flow::normal;
    for (loop->at = 0; loop->at < loop->items.size() && flow != Flow::leave_loop; ++loop->at) {
        scope_ = std::make_shared<Scope>(Scope{outer, {}});
        meter_.bytes(sizeof(Scope) + 64);
        scope_->values.emplace("loop", Value::object(Kind::loop, loop));
        assign(s.targets[0], loop->items[loop->at]);
        flow = run(s.bodies[0], out);
    }
    if (loop->items.empty() && s.bodies.size() > 1) {
        scope_ = std::make_shared<Scope>(Scope{outer, {}});
        flow = run(s.bodies[1], out);
        scope_ = outer;
        return flow;
    }
    scope_ = outer;
    return Flow::normal;
}

void Evaluator::run_text_block(const Stmt &s, Text &out) {
    Text text;
    Stmt no_values;
    run_scoped(no_values, s.bodies[0], text);
    block_texts_.push_back(std::move(text));
    const Value value = evaluate(*s.exprs[0]);
    block_texts_.pop_back();
    if (s.kind == StmtKind::set_block)
        assign(s.targets[0], value);
    else
        write_value(out, value);
}

void Evaluator::run_call_block(const Stmt &s, Text &out) {
    const Value caller = make_macro(s);
    write_value(out, evaluate_call(*s.exprs[0], &caller));
}

void Evaluator::assign(const Target &target, const Value &value) {
    if (!target.parts.empty()) {
        const std::vector<Value> items = elements(value, meter_);
        if (items.size() != target.parts.size())
            fail("expected {} values for the names on the left side, found {}", target.parts.size(),
                 items.size());
        for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
        return;
    }
    meter_.bytes(target.name.size() + 64);
    if (target.attribute.empty()) {
        scope_->values.insert_or_assign(target.name, value);
        return;
    }
    const Value space = evaluate_name(target.name);
    if (!space.is(Kind::space))
        fail("{}.{}: expected a namespace, found {}; only attributes of namespaces can be set",
             printable(target.name, 60), printable(target.attribute, 60), type_name(space));
    space.as<Space>().values.insert_or_assign(target.attribute, value);
}

Value Evaluator::make_macro(const Stmt &statement) {
    auto macro = std::make_shared<Macro>();
    macro->statement = &statement;
    macro->scope = scope_;
    meter_.bytes(512);
    if (macro_scopes_.empty() || macro_scopes_.back() != scope_) macro_scopes_.push_back(scope_);
    return Value::object(Kind::macro, std::move(macro));
}

// Sets the parameters of a macro in the current scope.
void Evaluator::bind(const Macro &macro, Arguments &arguments, const Value *caller) {
    const Stmt &s = *macro.statement;
    const std::vector<std::string> &names = s.parameters;
    const auto set = [&](const std::string &name, Value value) {
        scope_->values.insert_or_assign(name, std::move(value));
    };
    const std::size_t given = std::min(names.size(), arguments.positional.size());
    for (std::size_t i = 0; i < given; ++i) set(names[i], arguments.positional[i]);
    std::vector<Value> more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                            arguments.positional.end());
    if (!more.empty() && !s.uses_varargs)
        fail("{} takes at most {} arguments, found {}", s.name, names.size(),
             arguments.positional.size());
    auto others = std::make_shared<Dict>();
    for (auto &[name, value] : arguments.named) {
        if (std::ranges::find(names, name) != names.end()) {
            if (scope_->values.contains(name))
                fail("{} got two values for the argument {}", s.name, printable(name, 60));
            set(name, std::move(value));
        } else if (s.uses_kwargs) {
            others->set(Value::string(name), std::move(value));
        } else {
            fail("{} has no argument {}", s.name, printable(name, 60));
        }
    }
    const std::size_t before = s.kind == StmtKind::call_block ? 1 : 0; // exprs[0] is the call
    const std::size_t defaults = s.exprs.size() - before;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (scope_->values.contains(names[i])) continue;
        if (i + defaults >= names.size()) {
            set(names[i], evaluate(*s.exprs[before + i + defaults - names.size()]));
        } else {
            set(names[i], Value::undefined(fmt::format("parameter '{}' was not provided",
                                                       printable(names[i], 60))));
        }
    }
    if (s.uses_varargs) set("varargs", list(std::move(more), ListForm::tuple));
    if (s.uses_kwargs) set("kwargs", Value::dict(std::move(others)));
    if (s.uses_caller && s.kind == StmtKind::macro)
        set("caller", caller != nullptr ? *caller : Value::undefined("'caller' is undefined"));
    else if (caller != nullptr)
        fail("{} does not use its block; remove {{% call %}}", s.name);
}

Value Evaluator::call_macro(const Macro &macro, Arguments &arguments, const Value *caller) {
    const Depth depth(*this);
    const auto outer = scope_;
    const std::uint32_t line = line_;
    scope_ = std::make_shared<Scope>(Scope{macro.scope, {}});
    meter_.bytes(sizeof(Scope) + 64);
    bind(macro, arguments, caller);
    Text out;
    run(macro.statement->bodies[0], out);
    scope_ = outer;
    line_ = line;
    return string(std::move(out));
}

Value Evaluator::call(const Value &callee, Arguments arguments, const Value *caller) {
    if (caller != nullptr && !callee.is(Kind::macro))
        fail("{{% call %}}: expected a macro, found {}", type_name(callee));
    switch (callee.kind()) {
    case Kind::macro: {
        // holds the macro, because the template may assign another value to its name
        const Value held = callee;
        return call_macro(held.as<Macro>(), arguments, caller);
    }
    case Kind::method: {
        const Value held = callee;
        return call_method(*this, held.as<Method>().self, held.as<Method>().name,
                           std::move(arguments));
    }
    case Kind::function:
        return call_function(*this, callee.as<Method>().name, std::move(arguments));
    case Kind::joiner: {
        auto &joiner = callee.as<Joiner>();
        if (std::exchange(joiner.is_used, true)) return joiner.separator;
        return string(Text());
    }
    case Kind::undefined: fail("{}", callee.reason());
    default: fail("cannot call {}", type_name(callee));
    }
}

Value Evaluator::filter(const std::string &name, const Value &input, Arguments arguments) {
    return call_filter(*this, name, input, std::move(arguments));
}

bool Evaluator::test(const std::string &name, const Value &input, Arguments arguments) {
    return call_test(*this, name, input, std::move(arguments));
}

} // namespace keel::jinja
