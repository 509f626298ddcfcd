#include "reference/attention_dense.hpp"
#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/reference.hpp"

#include <memory>
#include <new>

namespace keel::reference {

keel_status report(const Context *context) noexcept {
    keel_status status = KEEL_E_INTERNAL;
    std::string why;
    try {
        throw;
    } catch (const Refusal &refusal) {
        status = refusal.status;
        try {
            why = refusal.why;
        } catch (...) { // there is no memory for the message, so the call only returns the status
        }
    } catch (const std::bad_alloc &) {
        status = KEEL_E_OUT_OF_MEMORY;
    } catch (...) {
        status = KEEL_E_INTERNAL;
    }
    if (context != nullptr && context->host.set_error != nullptr && !why.empty()) {
        context->host.set_error(context->their_host, status, why.c_str());
    }
    return status;
}

namespace {

constexpr const char *op_names[] = {"",
#define KEEL_NAME(ID, slot, type) #slot,
                                    KEEL_FOR_EACH_OP(KEEL_NAME)
#undef KEEL_NAME
};

// Copies the caller's args into this version's struct, and sets missing members to 0. Refuses
// features that this version does not know.
template <typename Args> Args adopt_args(keel_op op, const Args *theirs) {
    Args args;
    if (keel_adopt(&args, sizeof(Args), theirs, sizeof(keel_op_args)) != KEEL_OK) {
        refuse(KEEL_E_INVALID_ARG, "the args have another ABI version or are too small");
    }
    if ((args.features & ~features_of(op)) != 0) {
        refuse(KEEL_E_UNSUPPORTED, "the args have feature bits that this backend does not know");
    }
    return args;
}

template <typename Args, keel_op Op, void (*Check)(const Args &), void (*Run)(const Args &)>
keel_status KEEL_CALL call(keel_ctx *ctx, const Args *theirs) {
    return guarded(&of(ctx), [&] {
        const Args args = adopt_args(Op, theirs);
        if (args.plan != nullptr)
            need_that(of(args.plan).op == Op, "the plan was made for another op");
        Check(args);
        Run(args);
    });
}

void check_op(keel_op op, const keel_op_args *args) {
    switch (op) {
#define KEEL_CASE(ID, slot, type)                                                                  \
    case KEEL_OP_##ID: check_##slot(adopt_args(op, reinterpret_cast<const type *>(args))); return;
        KEEL_FOR_EACH_OP(KEEL_CASE)
#undef KEEL_CASE
    default: refuse(KEEL_E_UNSUPPORTED, "op " + std::to_string(op) + " is not known");
    }
}

keel_status KEEL_CALL op_plan(keel_ctx *ctx, keel_op op, const keel_op_args *args,
                              keel_plan **out) {
    *out = nullptr;
    return guarded(&of(ctx), [&] {
        check_op(op, args);
        auto plan = std::make_unique<Plan>();
        plan->op = op;
        plan->kernel = std::string(op_names[op]) + " reference float64";
        *out = reinterpret_cast<keel_plan *>(plan.release());
    });
}

void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *plan) { delete reinterpret_cast<Plan *>(plan); }

keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *plan, keel_plan_info *out) {
    keel_plan_info info = {};
    of(plan).kernel.copy(info.kernel, sizeof(info.kernel) - 1);
    keel_emit(out, &info, sizeof(info));
    return KEEL_OK;
}

keel_backend make_table() {
    keel_backend table = {};
    table.h = KEEL_HEADER(keel_backend);
    fill_memory_slots(table);
    fill_weight_slots(table);
    table.op_plan = op_plan;
    table.plan_destroy = plan_destroy;
    table.plan_info = plan_info;
#define KEEL_FILL(ID, slot, type) table.slot = call<type, KEEL_OP_##ID, check_##slot, run_##slot>;
    KEEL_FOR_EACH_OP(KEEL_FILL)
#undef KEEL_FILL
    return table;
}

const void *KEEL_CALL extension(const char *id) {
    return keel_same(id, KEEL_EXT_ATTENTION_DENSE) != 0 ? attention_dense() : nullptr;
}

} // namespace
} // namespace keel::reference

namespace keel {

const keel_backend *reference_backend() {
    static const keel_backend table = reference::make_table();
    return &table;
}

const keel_plugin *reference_plugin() {
    static const keel_plugin plugin = [] {
        using reference::extension;
        keel_plugin p = {};
        p.h = KEEL_HEADER(keel_plugin);
        p.min_host_abi = KEEL_ABI_VERSION;
        p.kind = KEEL_PLUGIN_BACKEND;
        p.id = "reference";
        p.version = "0.1.0";
        p.vendor = "Keel";
        p.license = "MIT";
        p.doc =
            "The core's own backend: every op as plain float64 loops; slow, exact, always there.";
        p.build_info = "part of the core";
        p.vtable = reference_backend();
        p.get_extension = extension;
        return p;
    }();
    return &plugin;
}

} // namespace keel
