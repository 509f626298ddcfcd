#pragma once

#include "eval/ab/records/record.hpp"

#include <string>

// Identifies the machine that made results, by the properties that affect the numbers.
namespace keel::ab {

// The processor's model, the backend with its device, and the instruction set of its kernels: "AMD
// EPYC 9654; cpu on AMD EPYC 9654; avx512bf16". The text has no size of the memory and no number of
// processors.
std::string machine_kind(const Header &header);

// The processor's model in the text of Header::machine: "AMD EPYC 9654, 8 processors, 31.0 GiB".
std::string processor_of(const std::string &machine);

// Returns the text of Header::machine for a run that continues on another machine. The text lists
// all machines of the run. A machine is not listed twice.
std::string joined_machines(const std::string &before, const std::string &now);

} // namespace keel::ab
