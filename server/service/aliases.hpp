#pragma once

#include "server/service/keel_fields.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace keel::server {

// Further names of the model, each with its own policy.
using Aliases = std::map<std::string, KeelFields, std::less<>>;

// Reads a YAML file:
//
//     aliases:
//       tiny@snapkv-512: {policy: snapkv, budget: 512}
//
// The value has the keys of the object `keel` of a request. Throws Error(input) with the place.
Aliases load_aliases(const std::filesystem::path &path);
Aliases parse_aliases(std::string_view yaml, const std::string &name);

} // namespace keel::server
