#pragma once

#include "config/yaml_document.hpp"

#include <map>
#include <string>

namespace keel::pipeline {

// Maps the path of each key to the key's value in the tree.
using KeyValues = std::map<std::string, const YamlNode *, std::less<>>;

// Replaces the short form of each section by its long form: `sync: lazy` becomes `sync: {strategy:
// lazy}`.
void expand_shorthands(YamlNode &root);

// Collects the values of all keys. Throws Error(input) for unknown keys. The result points into
// `root`.
KeyValues collect_values(const YamlNode &root);

} // namespace keel::pipeline
