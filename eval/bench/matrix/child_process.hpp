#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

struct ChildResult {
    int code = -1; // exit code, or 128 + number of the signal that ended the child
    // The standard output of the child.
    std::string out;
};

// Runs a program to its end and returns its standard output. The program uses our standard error.
// If `interrupted` returns true, the program gets SIGINT once. Throws Error(runtime) if the program
// cannot be started, or if it prints more than `most` bytes.
ChildResult run_child(const std::filesystem::path &program,
                      const std::vector<std::string> &arguments,
                      const std::function<bool()> &interrupted, uint64_t most = uint64_t{8} << 20);

} // namespace keel
