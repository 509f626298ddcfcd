#pragma once

#include "plugin/host.hpp"
#include "plugin/library.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace keel::policy_check {

// The properties of the model for which a plugin's state is made.
struct Model {
    uint32_t layers, heads, kv_heads, head_dim;
    bool has_rope = true; // false: the layers of the model differ in RoPE
    std::string name() const;
};

// The results of a check. A plugin may refuse a model, or a call that violates its needs, with a
// status and a message.
struct Report {
    int64_t checks = 0, refused = 0;
    std::vector<std::string> failures;

    void expect(bool holds, const std::string &what) {
        ++checks;
        if (!holds) failures.push_back(what);
    }
};

// These functions check whether a policy or a budget allocator does what policy.h and allocator.h
// require. They call the plugin's table with generated inputs, as a host would: lengths of 0 and 1,
// different lengths, budgets above and below the length, ties, zeros and large numbers. Each call
// is made twice to check that the result is the same. The checks also use two threads, older and
// newer hosts, and guard bytes around the memory that the plugin may write. They do not check
// whether the policy keeps useful slots.
Report check_policy(const PluginLibrary &plugin, const ParamValues &params,
                    const std::vector<Model> &models, uint64_t seed);
Report check_allocator(const PluginLibrary &plugin, const ParamValues &params,
                       const std::vector<Model> &models, uint64_t seed);
std::vector<Model> usual_models();

// ---- helpers of both checks --------------------------------------------------------------------

// Returns a number in [0, 1) that depends only on seed and index.
double uniform(uint64_t seed, uint64_t index);

// Owns a keel_geometry and its RoPE frequencies.
class ModelGeometry {
  public:
    explicit ModelGeometry(const Model &model);
    ModelGeometry(const ModelGeometry &) = delete;
    keel_geometry c = {KEEL_HEADER(keel_geometry)};

  private:
    std::vector<double> frequencies_;
};

// An array of n elements between guard bytes, which detect writes outside the array.
template <typename T> class Guarded {
  public:
    Guarded(size_t n, T value) : n_(n), cells_(n + 2 * margin) {
        std::memset(static_cast<void *>(cells_.data()), 0xa5, cells_.size() * sizeof(T));
        std::fill_n(data(), n, value);
    }
    T *data() { return cells_.data() + margin; }
    const T *data() const { return cells_.data() + margin; }
    T &operator[](size_t i) { return data()[i]; }
    size_t size() const { return n_; }
    bool intact() const {
        const auto is_guard = [](const T *from) {
            const auto *bytes = reinterpret_cast<const unsigned char *>(from);
            for (size_t i = 0; i < margin * sizeof(T); ++i)
                if (bytes[i] != 0xa5) return false;
            return true;
        };
        return is_guard(cells_.data()) && is_guard(cells_.data() + margin + n_);
    }

  private:
    static constexpr size_t margin = 32;
    size_t n_;
    std::vector<T> cells_;
};

// A struct of the ABI as an older or newer host passes it: `size` bytes of the struct, then 64
// bytes that are not part of the struct.
template <typename T> class OtherAge {
  public:
    OtherAge(const T &mine, uint32_t size) : bytes_(std::max<size_t>(size, sizeof(T)) + 64, 0xa5) {
        std::memcpy(bytes_.data(), &mine, std::min<size_t>(size, sizeof(T)));
        if (size > sizeof(T)) std::memset(bytes_.data() + sizeof(T), 0, size - sizeof(T));
        get()->h.struct_size = size_ = size;
    }
    T *get() { return reinterpret_cast<T *>(bytes_.data()); }
    bool intact() const { // true: the bytes after the struct's stated size are unchanged
        for (size_t i = size_; i < bytes_.size(); ++i)
            if (bytes_[i] != 0xa5) return false;
        return true;
    }

  private:
    std::vector<unsigned char> bytes_;
    uint32_t size_ = 0;
};

// Returns true if `status` is KEEL_OK. Otherwise returns false, and counts a refusal if the plugin
// gave a message. A refusal without a message is a failure.
bool passed(Report &report, keel_status status, const std::string &what);

} // namespace keel::policy_check
