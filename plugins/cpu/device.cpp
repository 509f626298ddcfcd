// This backend has one device: the processor of the machine.
#include "cpu/ops/ops.hpp"

#include <stdio.h>

namespace keel_cpu {

keel_status KEEL_CALL device_count(const keel_host *, uint32_t *n) noexcept {
    *n = 1;
    return KEEL_OK;
}

keel_status KEEL_CALL device_info(const keel_host *host, uint32_t index,
                                  keel_device_info *out) noexcept {
    if (index != 0)
        return fail(host, KEEL_E_NOT_FOUND,
                    "device %u does not exist: the cpu backend has only device 0", index);
    keel_device_info info = make_out<keel_device_info>();
    char name[49];
    cpu_name(name);
    snprintf(info.name, sizeof info.name, "%s", name[0] != 0 ? name : "CPU");
    snprintf(info.vendor, sizeof info.vendor, "%s", "");
    char isas[isa_list_bytes];
    snprintf(info.driver, sizeof info.driver, "keel cpu (%s)",
             available_isas(cpu_features(), isas));
    info.type = KEEL_DEVICE_CPU;
    info.flags = KEEL_DEVICE_UNIFIED | KEEL_DEVICE_IMPORTS_HOST;
    uint64_t available;
    system_memory(info.total_bytes, available);
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_cpu
