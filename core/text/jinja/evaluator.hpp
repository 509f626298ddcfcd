#pragma once

#include "text/jinja/ast.hpp"

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace keel::jinja {

// The variables of a block. Statements look names up here, then in the outer scopes.
struct Scope {
    std::shared_ptr<Scope> outer;
    std::unordered_map<std::string, Value> values;
};

struct Space final : Object {
    std::unordered_map<std::string, Value> values;
};

struct Loop final : Object {
    std::vector<Value> items;
    std::size_t at = 0;
};

struct Macro final : Object {
    const Stmt *statement = nullptr; // a macro or a call block
    std::shared_ptr<Scope> scope;
};

struct Cycler final : Object {
    std::vector<Value> items;
    std::size_t at = 0;
};

struct Joiner final : Object {
    Value separator;
    bool is_used = false;
};

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

// Evaluates a template. Used for one rendering.
class Evaluator {
  public:
    // `now`: the time that strftime_now() formats.
    Evaluator(const Limits &limits, std::time_t now);
    ~Evaluator();
    Evaluator(const Evaluator &) = delete;
    Evaluator &operator=(const Evaluator &) = delete;

    void set_variable(const std::string &name, Value value);
    Text render(const Body &body);
    std::uint32_t line() const noexcept { return line_; } // the line that is evaluated

    // For the built-in filters, tests, methods and functions.
    Meter &meter() noexcept { return meter_; }
    std::time_t now() const noexcept { return now_; }
    Value call(const Value &callee, Arguments arguments, const Value *caller = nullptr);
    Value filter(const std::string &name, const Value &input, Arguments arguments);
    bool test(const std::string &name, const Value &input, Arguments arguments);
    Value attribute(const Value &of, const std::string &name);
    Value item(const Value &of, const Value &index);
    Value string(Text text); // counts the bytes
    Value list(std::vector<Value> items, ListForm form = ListForm::list);
    Text text_of(const Value &value) { return to_text(value, meter_); }
    // Keeps an object until the end of the rendering, because it may be part of a cycle.
    void keep(std::shared_ptr<Space> space) { spaces_.push_back(std::move(space)); }

  private:
    enum class Flow { normal, leave_loop, next_round };
    struct Depth {
        explicit Depth(Evaluator &of);
        ~Depth() { --of_.depth_; }
        Depth(const Depth &) = delete;
        Depth &operator=(const Depth &) = delete;
        Evaluator &of_;
    };

    Flow run(const Body &body, Text &out);
    Flow run_statement(const Stmt &statement, Text &out);
    Flow run_branch(const Stmt &statement, Text &out);
    Flow run_loop(const Stmt &statement, Text &out);
    Flow run_scoped(const Stmt &statement, const Body &body, Text &out);
    void run_text_block(const Stmt &statement, Text &out);
    void run_call_block(const Stmt &statement, Text &out);
    void write(Text &out, const Text &text);
    void write_value(Text &out, const Value &value);
    void assign(const Target &target, const Value &value);
    Value make_macro(const Stmt &statement);
    Value call_macro(const Macro &macro, Arguments &arguments, const Value *caller);
    void bind(const Macro &macro, Arguments &arguments, const Value *caller);

    Value evaluate(const Expr &e);
    Value evaluate_name(const std::string &name);
    Value evaluate_call(const Expr &e, const Value *caller = nullptr);
    Value evaluate_compare(const Expr &e);
    Value evaluate_slice(const Expr &e);
    Value evaluate_dict(const Expr &e);
    Value evaluate_concat(const Expr &e);
    Value evaluate_sign(const Expr &e);
    bool compare_values(Op op, const Value &a, const Value &b);
    std::vector<Value> evaluate_all(const std::vector<ExprPtr> &kids);
    Arguments evaluate_arguments(const Expr &e);

    Meter meter_;
    std::time_t now_;
    std::uint32_t line_ = 1, depth_ = 0;
    std::shared_ptr<Scope> scope_;
    std::vector<Text> block_texts_;
    // Objects that may hold each other. They are emptied one by one at the end, so a cycle is freed
    // and a long chain does not overflow the stack.
    std::vector<std::shared_ptr<Space>> spaces_;
    std::vector<std::shared_ptr<Scope>> macro_scopes_;
};

// Python's operators. `evaluator` counts the work.
Value binary(Evaluator &evaluator, Op op, const Value &a, const Value &b);
bool contains(Evaluator &evaluator, const Value &in, const Value &what);

// Built-in names. Each of them throws Failure if the name or an argument is unknown.
Value call_filter(Evaluator &evaluator, const std::string &name, const Value &input,
                  Arguments arguments);
bool call_test(Evaluator &evaluator, const std::string &name, const Value &input,
               Arguments arguments);
Value call_function(Evaluator &evaluator, const std::string &name, Arguments arguments);
bool has_function(const std::string &name);
Value function_value(const std::string &name);
// has_method: as in Python, an object's method hides a key of a dict with the same name.
bool has_method(const Value &self, const std::string &name);
Value call_method(Evaluator &evaluator, const Value &self, const std::string &name,
                  Arguments arguments);

} // namespace keel::jinja
