#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace keel::cli {

struct ChildResult {
    int code = -1; // its exit code; 128 + the signal that ended it
    std::string out;
};

// Runs a program to its end and takes its standard output; its standard error is ours. A Ctrl-C is handed on. Throws Error(runtime) if
// it cannot be started, or prints more than `most` bytes.
ChildResult run_child(const std::filesystem::path &program, const std::vector<std::string> &arguments,
                      uint64_t most = uint64_t{8} << 20);

} // namespace keel::cli
