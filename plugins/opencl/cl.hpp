// The OpenCL C API, handles that release their objects, and the translation of OpenCL's status
// codes.
#pragma once

#include "gpu/report.hpp"

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <string>
#include <utility>

namespace keel_opencl {

using keel_gpu::refuse;

// Returns the name of an error, for example "CL_OUT_OF_RESOURCES (-5)".
std::string error_name(cl_int code);
// Returns the status for the core: out of memory, device lost, or an internal error. If `waiting`
// is true, the code came from a wait for the device. Then CL_OUT_OF_RESOURCES means that the driver
// killed a kernel.
keel_status status_of(cl_int code, bool waiting = false);

// Throws Refusal with status_of(code) and the message "what: CL_..." if code is not CL_SUCCESS.
void check(const keel_host *host, cl_int code, const char *what, bool waiting = false);

// Owns a cl_* object and releases it in the destructor.
template <class T, cl_int(CL_API_CALL *Release)(T)> class Handle {
  public:
    Handle() = default;
    explicit Handle(T object) : object_(object) {}
    Handle(Handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        reset(std::exchange(other.object_, nullptr));
        return *this;
    }
    ~Handle() { reset(); }
    T get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }
    void reset(T object = nullptr) {
        if (object_ != nullptr) Release(object_);
        object_ = object;
    }

  private:
    T object_ = nullptr;
};

using Context = Handle<cl_context, clReleaseContext>;
using Queue = Handle<cl_command_queue, clReleaseCommandQueue>;
using Program = Handle<cl_program, clReleaseProgram>;
using Kernel = Handle<cl_kernel, clReleaseKernel>;
using Memory = Handle<cl_mem, clReleaseMemObject>;
using Event = Handle<cl_event, clReleaseEvent>;

} // namespace keel_opencl
