#pragma once

#include "config/yaml_document.hpp"

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

// Reads and checks values of YAML files that are not pipelines: experiments, and matrices of
// benchmarks. All functions throw Error(input) "FILE:LINE:COLUMN: ...".
namespace keel::yaml {

[[noreturn]] void fail(const SourceLocation &where, const std::string &what);

// Refuses unknown keys. `in` names the map in messages: "an experiment".
void check_keys(const pipeline::YamlNode &map, std::string_view in,
                const std::vector<std::string> &known);

// Returns the entry `key` of a map. Throws an error if the entry is missing or null. If another
// entry is probably a misspelling of `key`, the error names that entry. Otherwise the error shows
// `example`. `in` names the map in messages: "a task".
const pipeline::YamlEntry &required(const pipeline::YamlNode &map, std::string_view key,
                                    std::string_view in, std::string_view example);

// throws if the scalar is empty
const std::string &scalar(const pipeline::YamlNode &node, std::string_view what);
int64_t integer(const pipeline::YamlNode &node, std::string_view what, int64_t low, int64_t high);
double number(const pipeline::YamlNode &node, std::string_view what, double low, double high);
bool boolean(const pipeline::YamlNode &node, std::string_view what);
size_t choice(const pipeline::YamlNode &node, std::string_view what,
              std::initializer_list<std::string_view> words);
std::filesystem::path
path(const pipeline::YamlNode &node); // an absolute path; relative paths start at the file's folder
// Returns the items of a list. A single value counts as a list with one item.
std::vector<const pipeline::YamlNode *> items(const pipeline::YamlNode &node, std::string_view key,
                                              size_t most);

} // namespace keel::yaml
