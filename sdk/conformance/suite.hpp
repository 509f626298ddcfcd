#pragma once

#include "conformance/scene.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace keel::conformance {

// A tensor that an op writes, and how near it has to come. Bounds are those of the op's header, on
// |y - reference| / (1 + s); 0 means exact.
struct Output {
    int tensor = none;
    double bound = 0;
    double fast_bound = 0; // of a kernel that says "fast"; 0: bound
    bool is_cache = false; // written through a quantized or 16-bit dtype: its rounding comes on top
    bool term_sums = false; // s is the sum of |terms|, found by running the op on absolute values
                            // (Case::absolute)
};

// One call with its inputs and what is compared afterwards.
struct Case {
    std::string name;
    Scene scene;
    std::function<keel_status(Stage &)> call;
    std::vector<Output> outputs;
    std::vector<int> absolute;                     // tensors made absolute for term_sums
    std::vector<std::pair<int, Tensor>> stand_ins; // tensors replaced for term_sums
    bool may_refuse = false; // a stride or alignment that a backend may turn down
};

struct Options {
    bool quick = true;
    bool complete = false; // UNSUPPORTED is a failure
    uint64_t seed = 1;
    std::string only_op; // empty: all
    int64_t only_case = -1;
    int64_t every = 1;    // only each n-th case
    int max_messages = 5; // per op
};

// What came out for one op.
struct Report {
    int64_t cases = 0, refused = 0, failures = 0;
    double worst = 0; // largest error in units of its bound
    std::string worst_case;
    std::vector<std::string> messages;
    std::string kernels; // an example
};

// Runs cases on the subject and on the reference and compares.
class Suite {
  public:
    Suite(Side &subject, Side &oracle, const Options &options)
        : subject_(subject), oracle_(oracle), options_(options) {}

    void begin(keel_op op); // the op whose cases follow
    // Whether the next case is wanted; each case begins with this. It seeds the generator, so that
    // a case is the same whichever others run.
    bool next();
    Rng &rng() { return rng_; }
    bool quick() const { return options_.quick; }
    keel_op op() const { return op_; }
    Side &subject() { return subject_; }
    // The dtypes that A stands for with this backend.
    std::vector<keel_dtype> activations() const;

    void check(Case &&c);
    // A call that the ops' headers rule out: the plan or the call must refuse it, and nothing be
    // written.
    void check_refused(Case &&c);
    void fail(const std::string &message);
    const Report &report() const { return report_; }

  private:
    void check_in(const Case &c, Manner manner);
    // A feature bit that no backend knows must be refused, by the plan and by the call, and nothing
    // be written.
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

// The cases of each group of ops; each looks at suite.op().
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
void cases_of(Suite &suite, keel_op op);

// Sizes of a dimension: small ones by one, then each of `blocking` with one either side, and some
// primes.
std::vector<int64_t> sizes(bool quick, std::initializer_list<int64_t> blocking, int64_t lanes);
// Outer strides and misalignments to try on element-wise and row-wise ops.
std::vector<Layout> layouts(bool quick);

// A tensor with a NaN, or infinity, at a few places.
void poison(Rng &rng, Tensor &t, float value, int places);

} // namespace keel::conformance
