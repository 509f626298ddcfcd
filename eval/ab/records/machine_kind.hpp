#pragma once

#include "eval/ab/records/record.hpp"

#include <string>

// Which machine made results, as far as numbers depend on it.
namespace keel::ab {

// The processor's model, the backend with its device, and the instruction set of its kernels:
// "AMD EPYC 9654; cpu on AMD EPYC 9654; avx512bf16". Memory and the number of processors are not in
// it.
std::string machine_kind(const Header &header);

// The processor's model in the text of Header::machine: "AMD EPYC 9654, 8 processors, 31.0 GiB".
std::string processor_of(const std::string &machine);

// The text of Header::machine for a run that goes on on another machine: both, each once.
std::string joined_machines(const std::string &before, const std::string &now);

} // namespace keel::ab
