#include "opencl/cl.hpp"

namespace keel_opencl {

std::string error_name(cl_int code) {
    struct Row {
        cl_int code;
        const char *name;
    };
    constexpr Row rows[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                            {-2, "CL_DEVICE_NOT_AVAILABLE"},
                            {-3, "CL_COMPILER_NOT_AVAILABLE"},
                            {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                            {-5, "CL_OUT_OF_RESOURCES"},
                            {-6, "CL_OUT_OF_HOST_MEMORY"},
                            {-11, "CL_BUILD_PROGRAM_FAILURE"},
                            {-12, "CL_MAP_FAILURE"},
                            {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
                            {-30, "CL_INVALID_VALUE"},
                            {-34, "CL_INVALID_CONTEXT"},
                            {-36, "CL_INVALID_COMMAND_QUEUE"},
                            {-37, "CL_INVALID_HOST_PTR"},
                            {-38, "CL_INVALID_MEM_OBJECT"},
                            {-42, "CL_INVALID_BINARY"},
                            {-43, "CL_INVALID_BUILD_OPTIONS"},
                            {-44, "CL_INVALID_PROGRAM"},
                            {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
                            {-46, "CL_INVALID_KERNEL_NAME"},
                            {-48, "CL_INVALID_KERNEL"},
                            {-49, "CL_INVALID_ARG_INDEX"},
                            {-50, "CL_INVALID_ARG_VALUE"},
                            {-51, "CL_INVALID_ARG_SIZE"},
                            {-52, "CL_INVALID_KERNEL_ARGS"},
                            {-54, "CL_INVALID_WORK_GROUP_SIZE"},
                            {-55, "CL_INVALID_WORK_ITEM_SIZE"},
                            {-59, "CL_INVALID_OPERATION"},
                            {-61, "CL_INVALID_BUFFER_SIZE"},
                            {-1001, "CL_PLATFORM_NOT_FOUND_KHR"}};
    for (const Row &row : rows)
        if (row.code == code) return std::string(row.name) + " (" + std::to_string(code) + ")";
    return "OpenCL error " + std::to_string(code);
}

keel_status status_of(cl_int code, bool waiting) {
    switch (code) {
    case CL_SUCCESS: return KEEL_OK;
    case CL_OUT_OF_RESOURCES: return waiting ? KEEL_E_DEVICE_LOST : KEEL_E_OUT_OF_MEMORY;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE: return KEEL_E_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
    // the backend's queue handle is valid, so this code means that the driver gave up the queue
    case CL_INVALID_COMMAND_QUEUE:
    case -9999: // code of NVIDIA's driver: a kernel accessed invalid memory
        return KEEL_E_DEVICE_LOST;
    case -1001: // the machine has no OpenCL platform
        return KEEL_E_NOT_FOUND;
    default: return KEEL_E_INTERNAL;
    }
}

void check(const keel_host *host, cl_int code, const char *what, bool waiting) {
    if (code != CL_SUCCESS)
        refuse(host, status_of(code, waiting), "%s: %s", what, error_name(code).c_str());
}

} // namespace keel_opencl
