#pragma once

#include "eval/ab/run/document_runner.hpp"

#include <vector>

namespace keel::ab {

// Estimates how long an experiment takes. The estimate comes from a measurement: every run
// processes some of the documents.
class CostProbe {
  public:
    CostProbe(ItemContext &context, DocumentRunner &documents)
        : context_(context), documents_(documents) {}

    // Runs each pipeline once before the measurement. The first tokens of a pipeline take longer,
    // because weights are read, memory is touched and kernels are compiled.
    void warm_up();
    // Estimates the seconds of each run for a task. The result is [runs]. The time to read a prompt
    // depends on the length of the prompt. This time is measured for the longest and the shortest
    // of the first `documents` documents. For all documents between these two, the time is
    // interpolated. The remaining time is proportional to the number of answers.
    std::vector<double> estimate(const PlannedTask &task, Protocol protocol, size_t documents);
    // Like estimate(), for a speed task. Measures one prompt of each depth, and some decode steps
    // after the prompt.
    std::vector<double> estimate_speed(const PlannedTask &task);

  private:
    struct Sample;
    static std::vector<Sample> samples(const PlannedTask &task, Protocol protocol,
                                       size_t documents);
    void measure(const PlannedTask &task, Protocol protocol, Sample &sample);

    ItemContext &context_;
    DocumentRunner &documents_;
};

} // namespace keel::ab
