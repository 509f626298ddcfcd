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

// Compares the ops of a step in the first pipeline with the ops of the same step in the second
// pipeline. Fills in the report.
class OpJudge {
  public:
    OpJudge(Pipeline &first, Pipeline &second, const CompareOptions &options,
            CompareReport &report);

    void begin_step(const std::string &name);
    // Keeps the op's outputs. Call this function after each op of the second pipeline.
    void record(const PlannedOp &op, const keel_op_args *args);
    // Call before() before each op of the first pipeline, and after() after the op. after()
    // compares the outputs.
    void before(const PlannedOp &op, const keel_op_args *args);
    void after(const PlannedOp &op, const keel_op_args *args);
    void end_step(); // throws Error(input) if only one pipeline ran some op

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
        double squares = 0, scale = 0; // sums over all outputs
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
    std::vector<Record> records_; // the ops of the second pipeline's step
    size_t next_ = 0;             // position of the first pipeline in records_
    std::string surplus_;         // label of an op that only the first pipeline ran; empty: none
    // Inputs of the op that is running. NULL after the first finding.
    std::unique_ptr<OpDump> inputs_;
    std::map<std::string, size_t> row_of_; // maps a part to the index of the part's row in the
                                           // report
};

} // namespace keel
