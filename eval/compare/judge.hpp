#pragma once

#include "eval/compare/compare.hpp"
#include "eval/compare/op_bounds.hpp"
#include "eval/compare/op_dump.hpp"
#include "eval/compare/op_outputs.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// Compares the ops of a step of the first pipeline with those of the second, and fills in the
// report.
class OpJudge {
  public:
    OpJudge(Pipeline &first, Pipeline &second, const CompareOptions &options,
            CompareReport &report);

    void begin_step(const std::string &name);
    // After an op of the second pipeline.
    void record(const PlannedOp &op, const keel_op_args *args);
    // Before an op of the first pipeline.
    void before(const PlannedOp &op, const keel_op_args *args);
    void after(const PlannedOp &op, const keel_op_args *args);
    void end_step(); // throws Error(input) if only one pipeline had some op

  private:
    struct Record {
        OpTag tag;
        std::string kernel;
        keel_op op;
        keel_dtype weight;
        std::vector<OpOutput> outputs;
    };
    struct Worst {
        size_t output = 0, element = 0;
        double error = 0, bound = 0, ratio = 0;
        double squares = 0, scale = 0; // over all outputs
    };

    OpDifference difference(const PlannedOp &op, const Record &other) const;
    Worst judge(const PlannedOp &op, const Record &other, const std::vector<OpOutput> &mine) const;
    void note(const PlannedOp &op, const Record &other, const std::vector<OpOutput> &mine,
              const Worst &worst, const keel_op_args *args);
    void find(const PlannedOp &op, const Record &other, const std::vector<OpOutput> &mine,
              const Worst &worst, const keel_op_args *args);
    [[noreturn]] void mismatch(const std::string &mine, const std::string &theirs) const;

    Pipeline &a_;
    Pipeline &b_;
    const CompareOptions &options_;
    CompareReport &report_;
    bool fast_;
    std::string step_;
    std::vector<Record> records_;          // the ops of the second's step
    size_t next_ = 0;                      // the first's position in records_
    std::string surplus_;                  // label of an op that only the first has; empty: none
    std::unique_ptr<OpDump> inputs_;       // of the running op; only until the first finding
    std::map<std::string, size_t> row_of_; // from part to index into the report's rows
};

} // namespace keel
