#pragma once

#include "base/json_reader.hpp"

#include <keel/scheduler.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::server {

// How one request's cache forgets: the object `keel` of a body, the header X-Keel-Policy, or an
// alias of the server's file.
struct KeelFields {
    api::PolicyChoice policy;
    std::vector<std::pair<int64_t, int64_t>> protect; // ranges of prompt tokens
    bool is_empty() const { return policy.empty() && protect.empty(); }
};

// Reads and checks the object. An unknown key is an error. Names of plugins are only names, never
// paths, because a request must not load a library of its choice. Throws JsonError.
KeelFields read_keel_fields(const JsonNode &object);

// Reads the header X-Keel-Policy, which has the same object as JSON. Throws ApiError.
KeelFields read_keel_header(std::string_view json);

} // namespace keel::server
