// Code that the fault layers of the GPU drivers share. It decides which call of the driver's API
// fails, and how. A layer is between the loader and the driver. So the tested backend is the
// shipped backend, without special code for tests.
//
// KEEL_DRIVER_FAULT="NAME N CODE": the N-th call of NAME from now on returns CODE and does nothing.
// "NAME N+ CODE": all later calls do so too. If the value changes, counting starts again.
// KEEL_DRIVER_COUNTS=FILE: when the device is closed, the number of calls is written to FILE, one
// "NAME N" on each line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace keel::test {

class DriverFaults {
  public:
    // Returns true if this call of `name` fails. Then `code` is its result.
    bool hits(const char *name, int32_t &code) {
        const std::lock_guard lock(mutex_);
        ++counts_[name];
        const char *text = std::getenv("KEEL_DRIVER_FAULT");
        if (text == nullptr) return false;
        if (text != text_) read(text);
        if (name_ != name || ++seen_ < first_ || (seen_ > first_ && !goes_on_)) return false;
        code = code_;
        return true;
    }
    void write_counts() {
        const std::lock_guard lock(mutex_);
        const char *path = std::getenv("KEEL_DRIVER_COUNTS");
        FILE *file = path != nullptr ? std::fopen(path, "w") : nullptr;
        if (file == nullptr) return;
        for (const auto &[name, n] : counts_)
            std::fprintf(file, "%s %llu\n", name.c_str(), static_cast<unsigned long long>(n));
        std::fclose(file);
    }

  private:
    void read(const char *text) {
        char name[64] = {}, more[2] = {};
        unsigned first = 0;
        int code = 0;
        text_ = text;
        seen_ = 0;
        goes_on_ = std::sscanf(text, "%63s %u%1[+] %d", name, &first, more, &code) == 4;
        if (!goes_on_ && std::sscanf(text, "%63s %u %d", name, &first, &code) != 3) name[0] = 0;
        name_ = name;
        first_ = first;
        code_ = code;
    }

    std::mutex mutex_;
    std::map<std::string, uint64_t> counts_;
    std::string text_, name_;
    uint64_t first_ = 0, seen_ = 0;
    bool goes_on_ = false;
    int32_t code_ = 0;
};

} // namespace keel::test
