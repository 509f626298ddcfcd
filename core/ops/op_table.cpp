#include "ops/op_table.hpp"

#include "plugin/host.hpp"

namespace keel {

const char *op_name(keel_op op) {
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID: return #slot;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default: return "?";
    }
}

bool has_op(const keel_backend &table, keel_op op) {
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID: return table.slot != nullptr;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default: return false;
    }
}

keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx,
                    const keel_op_args *args) {
    HostServices::drop_error(); // cheap: one store to thread-local memory
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID: return table.slot(ctx, reinterpret_cast<const Args *>(args));
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default: return KEEL_E_UNSUPPORTED;
    }
}

} // namespace keel
