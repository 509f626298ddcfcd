// Conversions between the types of the public headers and the types of the core.
#pragma once

#include <keel/keel.hpp>

#include "run/generate.hpp"

#include <cstdint>
#include <vector>

namespace keel::api {

keel::Progress progress_of(const Progress &progress);
// Throws Error(usage) for an id that is not in the vocabulary. `where` is the name of the function
// that the user called.
void check_ids(const std::vector<int32_t> &ids, const char *where, const keel::Pipeline &pipeline);
// Throws Error(usage) if an option is outside its range. The message names the member as the public
// header does. `least_tokens`: the smallest max_tokens.
GenerateOptions options_of(const Generation &g, int64_t least_tokens = 1);
Generation generation_of(const pipeline::PipelineConfig &config);
Stop stop_of(StopReason reason);
std::vector<Logprobs> logprobs_of(const std::vector<TokenLogprobs> &tokens);
Result result_of(GenerateResult &&r);

} // namespace keel::api
