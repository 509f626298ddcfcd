#pragma once

#include <vector>

// Tests that are repeated while an experiment grows: group sequential tests by alpha spending.
// Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", Biometrika 70;
// Jennison and Turnbull (2000), "Group Sequential Methods with Applications to Clinical Trials",
// chapter 7 and, for the numerical integration, chapter 19.
namespace keel {

// The looks at one test, up to the present one. At a look the test's statistic is nearly normal.
// The increments of the statistic are independent, because each look adds documents to the
// documents of the look before.
//
// The spending function is that of the O'Brien-Fleming type: up to the information fraction t, each
// side of a two-sided test of level a may reject with probability 2 - 2 F(z / sqrt(t)), where F is
// the normal distribution and z its 1 - a/4 quantile. At t = 1 this probability is a/2. So an early
// look rejects only for a very small p. The last look rejects if p is a little smaller than the
// level.
class SpendingLooks {
  public:
    // `fractions`: documents at each look / planned documents, rising, above 0 and at most 1. The
    // last fraction is the present look. Throws Error(runtime) for fractions of another form.
    explicit SpendingLooks(std::vector<double> fractions);

    // Returns the two-sided level for the p of the present look, if all looks together have the
    // level `level`. `level` is from 0 to 0.5.
    double nominal(double level) const;

    // Returns the sequential p-value (Liu and Anderson 2008): the smallest level at which the
    // present look rejects. `p` is the p of the present look alone. The sequential p-value is valid
    // at every look, so the p-values of several tests can be adjusted by Holm's method. Returns 1
    // if the present look does not reject at any level up to 0.5.
    double sequential_p(double p) const;

  private:
    double boundary(double level) const; // boundary of the normal statistic at the present look

    std::vector<double> fractions_;
    // Levels up to 0.5 and their nominal(), both as logarithms, which are interpolated. So p is at
    // most nominal(level) exactly if sequential_p(p) is at most the level. Empty for a single look
    // at fraction 1.
    std::vector<double> levels_, nominals_;
};

} // namespace keel
