// An OpenCL layer that makes calls of the driver fail. support/driver_faults.hpp describes how a
// test sets the faults. Special cases: If clGetDeviceIDs fails with CL_SUCCESS, it finds no device.
// If clGetEventInfo fails, its code becomes the state of the queried work; with CL_SUCCESS the work
// still runs, and its callback never comes. After CL_DEVICE_NOT_AVAILABLE, every call that queues
// or waits returns this code. Kernels that use mapped memory are refused.
#define CL_TARGET_OPENCL_VERSION 300
#include "support/driver_faults.hpp"

#include <CL/cl_layer.h>
#include <cstring>
#include <set>

#define KEEL_LAYER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

keel::test::DriverFaults &faults() {
    static keel::test::DriverFaults one;
    return one;
}
bool lost = false; // of the only context that is open
const cl_icd_dispatch *next = nullptr;
cl_icd_dispatch table = {};

bool fails(const char *name, cl_int &code) {
    int32_t told = 0;
    const bool hit = faults().hits(name, told);
    code = hit ? told : CL_DEVICE_NOT_AVAILABLE;
    if (hit && code == CL_DEVICE_NOT_AVAILABLE) lost = true;
    return hit;
}

bool fails_or_lost(const char *name, cl_int &code) { return fails(name, code) || lost; }

cl_int CL_API_CALL platforms(cl_uint n, cl_platform_id *ids, cl_uint *count) {
    cl_int code;
    if (fails("clGetPlatformIDs", code)) return code;
    return next->clGetPlatformIDs(n, ids, count);
}

cl_int CL_API_CALL devices(cl_platform_id platform, cl_device_type type, cl_uint n,
                           cl_device_id *ids, cl_uint *count) {
    cl_int code;
    if (fails("clGetDeviceIDs", code)) {
        if (count != nullptr) *count = 0;
        return code;
    }
    return next->clGetDeviceIDs(platform, type, n, ids, count);
}

cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint n,
                                      const cl_device_id *ids,
                                      void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                                void *),
                                      void *user, cl_int *error) {
    lost = false;
    cl_int code;
    if (fails("clCreateContext", code)) {
        if (error != nullptr) *error = code;
        return nullptr;
    }
    return next->clCreateContext(properties, n, ids, notify, user, error);
}

cl_int CL_API_CALL release_context(cl_context context) {
    faults().write_counts();
    return next->clReleaseContext(context);
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                                 cl_int *error) {
    cl_int code;
    if (fails("clCreateBuffer", code)) {
        if (error != nullptr) *error = code;
        return nullptr;
    }
    return next->clCreateBuffer(context, flags, size, host, error);
}

cl_int CL_API_CALL build(cl_program program, cl_uint n, const cl_device_id *ids,
                         const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                         void *user) {
    cl_int code;
    if (fails("clBuildProgram", code)) return code;
    return next->clBuildProgram(program, n, ids, options, notify, user);
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *error) {
    cl_int code;
    if (fails("clCreateKernel", code)) {
        if (error != nullptr) *error = code;
        return nullptr;
    }
    return next->clCreateKernel(program, name, error);
}

bool silent = false;     // the state that the last clGetEventInfo reported
std::set<cl_mem> mapped; // each context is used by one thread
// the kernel arguments that may be memory
std::map<cl_kernel, std::map<cl_uint, cl_mem>> arguments;

cl_int CL_API_CALL event_info(cl_event event, cl_event_info what, size_t size, void *value,
                              size_t *size_out) {
    cl_int code = CL_SUCCESS;
    const bool hit = what == CL_EVENT_COMMAND_EXECUTION_STATUS && value != nullptr &&
                     fails("clGetEventInfo", code);
    const cl_int state = code == CL_SUCCESS ? CL_RUNNING : code;
    silent = hit && state == CL_RUNNING;
    code = next->clGetEventInfo(event, what, size, value, size_out);
    if (hit) std::memcpy(value, &state, sizeof state);
    return code;
}

cl_int CL_API_CALL event_callback(cl_event event, cl_int status,
                                  void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *user) {
    return silent ? CL_SUCCESS : next->clSetEventCallback(event, status, notify, user);
}

void *CL_API_CALL map(cl_command_queue queue, cl_mem buffer, cl_bool blocks, cl_map_flags flags,
                      size_t offset, size_t size, cl_uint n, const cl_event *after, cl_event *event,
                      cl_int *error) {
    mapped.insert(buffer);
    return next->clEnqueueMapBuffer(queue, buffer, blocks, flags, offset, size, n, after, event,
                                    error);
}

cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem buffer, void *at, cl_uint n,
                         const cl_event *after, cl_event *event) {
    mapped.erase(buffer);
    return next->clEnqueueUnmapMemObject(queue, buffer, at, n, after, event);
}

cl_int CL_API_CALL set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    arguments[kernel].erase(index);
    if (size == sizeof(cl_mem) && value != nullptr)
        std::memcpy(&arguments[kernel][index], value, size);
    return next->clSetKernelArg(kernel, index, size, value);
}

cl_int CL_API_CALL run(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                       const size_t *offset, const size_t *global, const size_t *local, cl_uint n,
                       const cl_event *after, cl_event *event) {
    cl_int code;
    if (fails_or_lost("clEnqueueNDRangeKernel", code)) return code;
    for (const auto &arg : arguments[kernel])
        if (mapped.count(arg.second) != 0) return CL_INVALID_OPERATION;
    return next->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n, after,
                                        event);
}

cl_int CL_API_CALL read(cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset,
                        size_t size, void *to, cl_uint n, const cl_event *after, cl_event *event) {
    cl_int code;
    if (fails_or_lost("clEnqueueReadBuffer", code)) return code;
    return next->clEnqueueReadBuffer(queue, memory, blocks, offset, size, to, n, after, event);
}

cl_int CL_API_CALL write(cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset,
                         size_t size, const void *from, cl_uint n, const cl_event *after,
                         cl_event *event) {
    cl_int code;
    if (fails_or_lost("clEnqueueWriteBuffer", code)) return code;
    return next->clEnqueueWriteBuffer(queue, memory, blocks, offset, size, from, n, after, event);
}

cl_int CL_API_CALL wait_for(cl_uint n, const cl_event *events) {
    cl_int code;
    if (fails_or_lost("clWaitForEvents", code)) return code;
    return next->clWaitForEvents(n, events);
}

cl_int CL_API_CALL flush(cl_command_queue queue) {
    cl_int code;
    if (fails_or_lost("clFlush", code)) return code;
    return next->clFlush(queue);
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
    cl_int code;
    if (fails_or_lost("clFinish", code)) return code;
    return next->clFinish(queue);
}

} // namespace

KEEL_LAYER_EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value,
                                                    size_t *size_out) {
    constexpr cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    constexpr char name[] = "keel fault layer";
    const void *from = what == CL_LAYER_API_VERSION ? static_cast<const void *>(&version) : name;
    const size_t n = what == CL_LAYER_API_VERSION ? sizeof version : sizeof name;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME) return CL_INVALID_VALUE;
    if (value != nullptr && size < n) return CL_INVALID_VALUE;
    if (value != nullptr) std::memcpy(value, from, n);
    if (size_out != nullptr) *size_out = n;
    return CL_SUCCESS;
}

KEEL_LAYER_EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *target,
                                                 cl_uint *n_out, const cl_icd_dispatch **out) {
    constexpr cl_uint entries = sizeof(cl_icd_dispatch) / sizeof(void *);
    if (target == nullptr || n_out == nullptr || out == nullptr || n < entries)
        return CL_INVALID_VALUE;
    next = target;
    table = *target;
    table.clGetPlatformIDs = platforms;
    table.clGetDeviceIDs = devices;
    table.clCreateContext = create_context;
    table.clReleaseContext = release_context;
    table.clCreateBuffer = create_buffer;
    table.clBuildProgram = build;
    table.clCreateKernel = create_kernel;
    table.clEnqueueNDRangeKernel = run;
    table.clSetKernelArg = set_arg;
    table.clEnqueueMapBuffer = map;
    table.clEnqueueUnmapMemObject = unmap;
    table.clGetEventInfo = event_info;
    table.clSetEventCallback = event_callback;
    table.clEnqueueReadBuffer = read;
    table.clEnqueueWriteBuffer = write;
    table.clWaitForEvents = wait_for;
    table.clFlush = flush;
    table.clFinish = finish;
    *n_out = entries;
    *out = &table;
    return CL_SUCCESS;
}
