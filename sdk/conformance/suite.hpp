#pragma once

#include "conformance/scene.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace keel::conformance {

// A tensor that an op writes, and its error bound. The bounds are those of the op's header. They
// apply to |y - reference| / (1 + s). A bound of 0 means that the result must be exact.
struct Output {
    int tensor = none;
    double bound = 0;
    double fast_bound = 0; // bound for kernels whose name contains "fast"; 0: `bound` applies
    // True: the tensor has a quantized or 16-bit dtype, whose rounding error is added to the bound.
    bool is_cache = false;
    // True: s is the sum of the magnitudes of the terms. The suite computes s by running the op on
    // absolute values (Case::absolute).
    bool term_sums = false;
};

// One call of an op, with its inputs and the outputs to compare.
struct Case {
    std::string name;
    Scene scene;
    std::function<keel_status(Stage &)> call;
    std::vector<Output> outputs;
    // If term_sums is true, the op runs on the absolute values of these tensors.
    std::vector<int> absolute;
    // if term_sums is true, these tensors are replaced by other tensors
    std::vector<std::pair<int, Tensor>> stand_ins;
    bool may_refuse = false; // true: the case has a stride or alignment that a backend may refuse
};

struct Options {
    bool quick = true;
    bool complete = false; // true: UNSUPPORTED counts as a failure
    uint64_t seed = 1;
    std::string only_op; // name of the only op to test; empty: all ops
    int64_t only_case = -1;
    int64_t every = 1;    // only every n-th case runs
    int max_messages = 5; // largest number of messages for each op
};

// The results for one op.
struct Report {
    int64_t cases = 0, refused = 0, failures = 0;
    double worst = 0; // largest error divided by its bound
    std::string worst_case;
    std::vector<std::string> messages;
    std::string kernels; // examples of kernel names
};

// Runs cases on the tested backend and on the reference backend, and compares the results.
class Suite {
  public:
    Suite(Side &subject, Side &oracle, const Options &options)
        : subject_(subject), oracle_(oracle), options_(options) {}

    void begin(keel_op op); // sets the op of the following cases
    // Returns true if the next case should run. Each case must call this function first. The
    // function also seeds the random generator. So the values of a case do not depend on the cases
    // that ran before.
    bool next();
    Rng &rng() { return rng_; }
    bool quick() const { return options_.quick; }
    keel_op op() const { return op_; }
    Side &subject() { return subject_; }
    // Returns the activation dtypes to test with this backend.
    std::vector<keel_dtype> activations() const;

    void check(Case &&c);
    // Checks a call that the op headers forbid. The plan or the call must refuse it, and must write
    // nothing.
    void check_refused(Case &&c);
    void fail(const std::string &message);
    const Report &report() const { return report_; }

  private:
    void check_in(const Case &c, Manner manner);
    // Checks a call with a feature bit that no backend knows. Both the plan and the call must
    // refuse it, and must write nothing.
    void check_unknown_feature(const Case &c, uint64_t bit);
    void check_untouched(const Case &c, Stage &stage, const char *what);
    void compare(const Case &c, const Output &out, const std::vector<uint8_t> &got,
                 const std::vector<uint8_t> &want, const std::vector<double> &sums, bool fast);
    std::vector<double> term_sums(const Case &c, const Output &out);
    void note(double ratio, const std::string &name);

    Side &subject_;
    Side &oracle_;
    Options options_;
    Rng rng_;
    keel_op op_ = 0;
    int64_t number_ = 0;
    Report report_;
};

// The cases of each group of ops. Each function runs the cases of suite.op().
void linear_cases(Suite &suite);
void norm_cases(Suite &suite);
void elementwise_cases(Suite &suite);
void move_cases(Suite &suite);
void rows_cases(Suite &suite);
void rope_cases(Suite &suite);
void attention_cases(Suite &suite);
void attention_scores_cases(Suite &suite);
void cache_cases(Suite &suite);
void policy_input_cases(Suite &suite);
void expert_cases(Suite &suite);
void cases_of(Suite &suite, keel_op op);

// Returns the sizes of a dimension to test: all small sizes, each number in `blocking` with its two
// neighbours, and some primes.
std::vector<int64_t> sizes(bool quick, std::initializer_list<int64_t> blocking, int64_t lanes);
// Returns the outer strides and misalignments to test with elementwise and row ops.
std::vector<Layout> layouts(bool quick);

// Puts a NaN or an infinity at a few places of a tensor.
void poison(Rng &rng, Tensor &t, float value, int places);

} // namespace keel::conformance
