#pragma once

#include "config/setting.hpp"

#include <keel/tensor.h>

#include <cstdint>
#include <optional>

namespace keel::pipeline {

struct KvSection {
    Setting<keel_dtype> dtype;
    Setting<std::optional<keel_dtype>> key_dtype, value_dtype;
    Setting<std::optional<double>> max_mib;
    Setting<bool> count_policy_state;

    keel_dtype key_type() const { return key_dtype->value_or(*dtype); }
    keel_dtype value_type() const { return value_dtype->value_or(*dtype); }
    std::optional<uint64_t> max_bytes() const; // kv.max_mib as bytes, rounded down
    bool operator==(const KvSection &) const = default;
};

} // namespace keel::pipeline
