#pragma once

#include "base/json_writer.hpp"

#include <keel/scheduler.hpp>

#include <cstdint>

namespace keel::server {

// The numbers of one HTTP request: the sum over its prompts.
struct UsageSum {
    api::RequestUsage total;
    uint64_t seed = 0; // that the server used

    void add(const api::RequestUsage &one);
};

// The object `usage` of an answer. Its member `keel` has the numbers of the cache.
void write_usage(JsonWriter &out, const UsageSum &usage);

} // namespace keel::server
