#include "opencl/kernel_cache.hpp"

namespace keel_opencl {

size_t KernelCache::Hash::operator()(const Key &key) const noexcept {
    uint64_t hash = reinterpret_cast<uintptr_t>(key.name) * 31 + static_cast<uint64_t>(key.source);
    for (const int value : key.values)
        hash = (hash ^ static_cast<uint64_t>(static_cast<uint32_t>(value))) * 0x9E3779B97F4A7C15ULL;
    return hash;
}

cl_kernel KernelCache::get(Source source, const char *name, Defines defines) {
    Key key = {source, name, {}, {}};
    size_t n = 0;
    for (const Define &define : defines) {
        if (n == 8)
            refuse(host_, KEEL_E_INTERNAL, "%s: expected at most 8 preprocessor macros, found more",
                   name);
        key.values[n] = define.value;
        key.names[n++] = define.name;
    }
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second.get();
    slow_start_.kernel_made();
    const keel_gpu::DriverTime time(slow_start_, host_, device_.name.c_str());
    cl_int code = CL_SUCCESS;
    Kernel made(clCreateKernel(program(source, defines), name, &code));
    check(host_, code, (std::string("kernel ") + name).c_str());
    return kernels_.emplace(key, std::move(made)).first->second.get();
}

cl_program KernelCache::program(Source source, Defines defines) {
    std::string options = "-cl-std=CL1.2";
    if (device_.exact_division) options += " -cl-fp32-correctly-rounded-divide-sqrt";
    for (const Define &define : defines)
        options += std::string(" -D ") + define.name + "=" + std::to_string(define.value);
    const std::string key = std::string(source_texts[static_cast<size_t>(source)].name) + options;
    const auto found = programs_.find(key);
    if (found != programs_.end()) return found->second.get();
    return programs_.emplace(key, build(source, options)).first->second.get();
}

// Builds a program from the cached binary if the driver accepts it, otherwise from source.
Program KernelCache::build(Source source, const std::string &options) {
    const SourceText &text = source_texts[static_cast<size_t>(source)];
    const auto key = keel_gpu::DiskCache::key(
        {device_.name, device_.vendor, device_.driver, options, types_text, text.text});
    const std::vector<uint8_t> stored = cache_.load(key);
    if (!stored.empty()) {
        const size_t size = stored.size();
        const unsigned char *data = stored.data();
        cl_int status = CL_SUCCESS, code = CL_SUCCESS;
        Program made(
            clCreateProgramWithBinary(context_, 1, &device_.device, &size, &data, &status, &code));
        if (code == CL_SUCCESS && status == CL_SUCCESS &&
            clBuildProgram(made.get(), 1, &device_.device, options.c_str(), nullptr, nullptr) ==
                CL_SUCCESS)
            return made;
    }
    Program made = build_source(source, options);
    size_t size = 0;
    if (clGetProgramInfo(made.get(), CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) ==
            CL_SUCCESS &&
        size != 0 && cache_.is_on()) {
        std::vector<uint8_t> binary(size);
        unsigned char *data = binary.data();
        if (clGetProgramInfo(made.get(), CL_PROGRAM_BINARIES, sizeof data, &data, nullptr) ==
            CL_SUCCESS)
            cache_.store(key, binary);
    }
    return made;
}

Program KernelCache::build_source(Source source, const std::string &options) {
    const SourceText &text = source_texts[static_cast<size_t>(source)];
    const char *parts[] = {types_text, text.text};
    cl_int code = CL_SUCCESS;
    Program made(clCreateProgramWithSource(context_, 2, parts, nullptr, &code));
    check(host_, code, text.name);
    code = clBuildProgram(made.get(), 1, &device_.device, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return made;
    // long enough for the first lines of the log, which name the error
    std::string log(1500, '\0');
    size_t size = 0;
    clGetProgramBuildInfo(made.get(), device_.device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    std::string whole(size + 1, '\0');
    clGetProgramBuildInfo(made.get(), device_.device, CL_PROGRAM_BUILD_LOG, size, whole.data(),
                          nullptr);
    for (char &c : whole)
        if (c == '\n') c = ' ';
    refuse(host_, code == CL_BUILD_PROGRAM_FAILURE ? KEEL_E_INTERNAL : status_of(code),
           "kernel file %s does not build (%s) for %s: %.1500s", text.name, options.c_str(),
           device_.name.c_str(), whole.c_str());
}

} // namespace keel_opencl
