#pragma once

#include "eval/ab/run/document_runner.hpp"

#include <vector>

namespace keel::ab {

// Estimates how long an experiment takes: every run takes some of the documents.
class CostProbe {
  public:
    CostProbe(ItemContext &context, DocumentRunner &documents)
        : context_(context), documents_(documents) {}

    // Warms up each pipeline. Its first tokens take longer, because weights are read, memory is
    // touched and kernels are compiled.
    void warm_up();
    // Estimates the seconds of each run for a task; the result is [runs]. The time for reading
    // depends on the length of prompts: it is interpolated between the longest and the shortest of
    // the first `documents` documents. The remaining time is proportional to the number of answers.
    std::vector<double> estimate(const PlannedTask &task, Protocol protocol, size_t documents);
    // The same for a speed task: one prompt of each depth, and some steps after it.
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
