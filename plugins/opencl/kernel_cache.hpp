// Finds kernels by source file, name and defines. A kernel is built when it is first needed, and
// exists as long as the context. The compiled binaries are stored on disk.
#pragma once

#include "gpu/disk_cache.hpp"
#include "gpu/slow_start.hpp"
#include "opencl/device.hpp"

#include <initializer_list>
#include <unordered_map>

namespace keel_opencl {

// The .cl files of the folder kernels/. The text of types.cl is put before the text of each file.
enum class Source : uint8_t {
    linear,
    norm,
    elementwise,
    move,
    rows,
    rope,
    kv,
    attention,
    attention_reduce,
    policy_inputs
};
constexpr size_t source_count = 10;

struct SourceText {
    const char *name, *text; // name: for example "linear.cl"
};
extern const SourceText source_texts[source_count]; // defined in kernel_sources.cpp
extern const char *const types_text;

// A macro that selects a variant of a kernel. `name` must be a string literal.
struct Define {
    const char *name;
    int value;
};
using Defines = std::initializer_list<Define>;

class KernelCache {
  public:
    // `cache_folder` is the folder for keel_gpu::DiskCache.
    KernelCache(const keel_host *host, cl_context context, const DeviceFacts &device,
                std::string cache_folder)
        : host_(host), context_(context), device_(device), cache_(std::move(cache_folder)) {}

    // Returns a kernel. Throws Refusal with the compiler's log if the program does not build. There
    // can be at most 8 defines.
    cl_kernel get(Source source, const char *name, Defines defines);
    keel_gpu::SlowStart &slow_start() { return slow_start_; }

  private:
    struct Key {
        Source source;
        const char *name;
        int values[8];
        const char *names[8];
        bool operator==(const Key &) const = default;
    };
    struct Hash {
        size_t operator()(const Key &key) const noexcept;
    };

    cl_program program(Source source, Defines defines);
    Program build(Source source, const std::string &options);
    Program build_source(Source source, const std::string &options);

    const keel_host *host_;
    cl_context context_;
    const DeviceFacts &device_;
    keel_gpu::DiskCache cache_; // the binaries on disk
    keel_gpu::SlowStart slow_start_;
    std::unordered_map<Key, Kernel, Hash> kernels_;
    // the key is the source file and the compiler options
    std::unordered_map<std::string, Program> programs_;
};

} // namespace keel_opencl
