#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

struct ChildResult {
    int code = -1; // its exit code, or 128 + the number of the signal that ended it
    std::string out;
};

// Runs a program to its end and returns its standard output. Its standard error goes to ours. When
// `interrupted` returns true, the child gets SIGINT once. Throws Error(runtime) if the program
// cannot be started, or if it prints more than `most` bytes.
ChildResult run_child(const std::filesystem::path &program,
                      const std::vector<std::string> &arguments,
                      const std::function<bool()> &interrupted, uint64_t most = uint64_t{8} << 20);

} // namespace keel
