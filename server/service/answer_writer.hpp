#pragma once

#include "server/service/usage.hpp"

#include <keel/scheduler.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace keel::server {

// What all answers of one request have in common.
struct AnswerHead {
    std::string id;      // "cmpl-..." or "chatcmpl-..."
    int64_t created = 0; // seconds since 1970
    std::string model;   // as the client named it
    std::string fingerprint;
};

// JSON texts that are sent as events of a stream, in order.
using Chunks = std::vector<std::string>;

// Makes the JSON of an answer from the events of its requests. One HTTP request may have several
// prompts; each prompt is one request of the scheduler. Choices are counted through all prompts.
class AnswerWriter {
  public:
    virtual ~AnswerWriter() = default;

    // `out` gets the chunks of a stream. If the answer is not streamed, it stays empty.
    virtual void begin(Chunks &out) = 0;
    virtual void take_prompt(size_t prompt, const std::vector<api::Logprobs> &tokens,
                             Chunks &out) = 0;
    virtual void take_event(size_t prompt, const api::RequestEvent &event, Chunks &out) = 0;
    // The last chunk of a stream with stream_options.include_usage.
    virtual std::string usage_chunk(const UsageSum &usage) const = 0;
    // The body of an answer that is not streamed.
    virtual std::string whole(const UsageSum &usage) const = 0;
};

// "stop" or "length".
const char *finish_reason(api::Stop stop);

// Writes the members id, object, created, model and system_fingerprint of an open object.
void write_head(JsonWriter &out, const AnswerHead &head, const char *object);

// A chunk without choices that has the usage.
std::string usage_text(const AnswerHead &head, const char *object, const UsageSum &usage);

} // namespace keel::server
