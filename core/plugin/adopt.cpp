#include "plugin/library.hpp"

#include "base/error.hpp"

#include <span>
#include <string_view>
#include <utility>

namespace keel {
namespace {

constexpr std::string_view blame = "this is a fault of the plugin: report it to its author";

// A function pointer of a table, and whether the plugin sets it.
struct Slot {
    std::string_view name;
    bool set;
};

void require_slots(std::span<const Slot> slots, const char *struct_name, const std::string &who) {
    std::string missing;
    for (const Slot &slot : slots) {
        if (slot.set) continue;
        if (!missing.empty()) missing += ", ";
        missing += slot.name;
    }
    if (missing.empty()) return;
    throw_error(ErrorKind::plugin, "{}: required slots of the {} table are NULL: {}; {}", who,
                struct_name, missing, blame);
}

template <typename T>
T adopt(const void *vtable, uint32_t required, const char *struct_name, const std::string &who) {
    if (vtable == nullptr)
        throw_error(ErrorKind::plugin, "{}: has no {} table (vtable is NULL); {}", who, struct_name,
                    blame);
    const keel_header theirs = *static_cast<const keel_header *>(vtable);
    T mine;
    if (keel_adopt(&mine, sizeof mine, vtable, required) == KEEL_OK) {
        // If the size is not a multiple of a pointer's size, the table ends within a pointer.
        if (mine.h.struct_size % sizeof(void *) == 0) return mine;
        throw_error(
            ErrorKind::plugin,
            "{}: the size of the {} table, {} bytes, is not a multiple of a pointer's size; {}",
            who, struct_name, theirs.struct_size, blame);
    }
    if (theirs.abi_version >> 16 != KEEL_ABI_MAJOR) {
        throw_error(ErrorKind::plugin, "{}: the {} table has ABI {}, this Keel has ABI {}; {}", who,
                    struct_name, abi_text(theirs.abi_version), abi_text(KEEL_ABI_VERSION),
                    "build the plugin with the headers of this Keel");
    }
    throw_error(ErrorKind::plugin, "{}: the {} table is too small: {} bytes, {} are required; {}",
                who, struct_name, theirs.struct_size, required, blame);
}

} // namespace

#define SLOT(name)                                                                                 \
    Slot { #name, table.name != nullptr }

keel_backend adopt_backend(const void *vtable, const std::string &who) {
    const auto table = adopt<keel_backend>(vtable, KEEL_PREFIX(keel_backend, wait), "backend", who);
    const Slot required[] = {SLOT(device_count), SLOT(device_info),   SLOT(ctx_create),
                             SLOT(ctx_destroy),  SLOT(buffer_create), SLOT(buffer_destroy),
                             SLOT(buffer_write), SLOT(buffer_read),   SLOT(flush),
                             SLOT(wait)};
    require_slots(required, "backend", who);
    const Slot with_weights[] = {SLOT(weight_destroy), SLOT(weight_info)};
    if (table.weight_prepare != nullptr)
        require_slots(with_weights, "backend", who + " (required together with weight_prepare)");
    const Slot with_plans[] = {SLOT(plan_destroy), SLOT(plan_info)};
    if (table.op_plan != nullptr)
        require_slots(with_plans, "backend", who + " (required together with op_plan)");
    return table;
}

keel_policy adopt_policy(const void *vtable, const std::string &who) {
    const auto table = adopt<keel_policy>(vtable, KEEL_PREFIX(keel_policy, decide), "policy", who);
    const Slot required[] = {SLOT(create), SLOT(destroy), SLOT(decide)};
    require_slots(required, "policy", who);
    const Slot with_save[] = {SLOT(load)};
    if (table.save != nullptr)
        require_slots(with_save, "policy", who + " (required together with save)");
    return table;
}

keel_allocator adopt_allocator(const void *vtable, const std::string &who) {
    const auto table =
        adopt<keel_allocator>(vtable, KEEL_PREFIX(keel_allocator, allocate), "allocator", who);
    const Slot required[] = {SLOT(create), SLOT(destroy), SLOT(allocate)};
    require_slots(required, "allocator", who);
    return table;
}

#undef SLOT

} // namespace keel
