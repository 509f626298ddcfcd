#pragma once

#include "config/yaml_document.hpp"

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

// Internal: values of an experiment's file, checked. All throw Error(input) "FILE:LINE:COLUMN: ...".
namespace keel::ab_yaml {

[[noreturn]] void fail(const SourceLocation &where, const std::string &what);

// Refuses keys that are not among the known ones. `in`: "an experiment".
void check_keys(const pipeline::YamlNode &map, std::string_view in, const std::vector<std::string> &known);
// Names of arms and tasks: letters, digits, _ . - and at most 64 of them, so that they serve as parts of file names.
void check_name(const std::string &name, const SourceLocation &where, std::string_view what);

const std::string &scalar(const pipeline::YamlNode &node, std::string_view what); // not empty
int64_t integer(const pipeline::YamlNode &node, std::string_view what, int64_t low, int64_t high);
double number(const pipeline::YamlNode &node, std::string_view what, double low, double high);
bool boolean(const pipeline::YamlNode &node, std::string_view what);
size_t choice(const pipeline::YamlNode &node, std::string_view what,
              std::initializer_list<std::string_view> words);
std::filesystem::path
path(const pipeline::YamlNode &node); // absolute; relative ones start from the file's folder
// A list, or one value that stands for a list of one.
std::vector<const pipeline::YamlNode *> items(const pipeline::YamlNode &node, std::string_view key,
                                              size_t most);

} // namespace keel::ab_yaml
