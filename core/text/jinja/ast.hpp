#pragma once

#include "text/jinja/value.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace keel::jinja {

enum class Op {
    none,
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in,
};

enum class ExprKind {
    constant,    // value
    name,        // name
    list,        // kids
    tuple,       // kids
    dict,        // kids: key, value, key, value...
    attribute,   // kids[0].name
    item,        // kids[0][kids[1]]
    slice,       // kids[0][kids[1]:kids[2]:kids[3]]; each of the last three may be NULL
    call,        // kids[0](arguments)
    filter,      // kids[0] | name(arguments)
    test,        // kids[0] is name(arguments)
    negate,      // -kids[0]
    plus,        // +kids[0]
    logical_not, // not kids[0]
    logical_and, // kids[0] and kids[1]
    logical_or,  // kids[0] or kids[1]
    binary,      // kids[0] op kids[1]
    compare,     // kids[0] ops[0] kids[1] ops[1] kids[2]...
    concat,      // kids[0] ~ kids[1] ~ ...
    conditional, // kids[1] if kids[0] else kids[2]; kids[2] may be NULL
    block_text,  // the text of the block of {% filter %} or of a {% set %} with a block
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
    ExprKind kind = ExprKind::constant;
    Op op = Op::none;
    std::uint32_t line = 1;
    std::uint32_t height = 1; // levels of the tree below, with this one
    std::string name;
    Value value;
    std::vector<ExprPtr> kids;         // for calls, filters and tests the arguments follow kids[0]
    std::vector<std::string> keywords; // the names of the last arguments
    std::vector<Op> ops;
};

// The left side of an assignment: a name, the attribute of a namespace, or several targets.
struct Target {
    std::string name, attribute;
    std::vector<Target> parts;
};

enum class StmtKind {
    text,         // text
    output,       // exprs[0]
    branch,       // if: exprs[i] with bodies[i]; if there is one more body, it is "else"
    loop,         // for targets[0] in exprs[0] if exprs[1] (may be NULL): bodies[0], else bodies[1]
    set,          // targets[0] = exprs[0]
    set_block,    // targets[0] = the text of bodies[0], through the filters exprs[0]
    macro,        // name, parameters, their defaults in exprs (for the last parameters), bodies[0]
    call_block,   // exprs[0] is the call; parameters, their defaults in exprs[1...], bodies[0]
    filter_block, // exprs[0] with the text of bodies[0]
    scope,        // with: targets[i] = exprs[i], then bodies[0]
    pass,         // generation: bodies[0]
    leave_loop,   // break
    next_round,   // continue
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Stmt {
    StmtKind kind = StmtKind::text;
    std::uint32_t line = 1;
    std::string text, name;
    std::vector<ExprPtr> exprs;
    std::vector<Body> bodies;
    std::vector<Target> targets;
    std::vector<std::string> parameters;
    bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

} // namespace keel::jinja
