#pragma once

#include "program.hpp"

#include "run/generate.hpp"
#include "run/prompt_file.hpp"

#include <string>
#include <vector>

namespace keel::cli {

// Reads the prompts of a JSONL file ('-' means standard input). Throws Error(input) "FILE:LINE:
// ...".
std::vector<BatchPrompt> read_prompts(const std::string &file);

// Throws Error(usage) if both paths are the same file, even under different names.
void check_apart(const std::string &prompts, const std::string &output);

// Generates answers for all prompts that have no answer yet. Returns the exit code. The exit code
// is 1 if a prompt could not be answered, in this run or in an earlier run.
int run_batch(Pipeline &pipeline, const std::vector<BatchPrompt> &prompts, AnswerFile &output,
              const GenerateOptions &options, const Program &program);

} // namespace keel::cli
