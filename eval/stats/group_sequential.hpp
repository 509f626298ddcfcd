#pragma once

#include <vector>

// Tests that are repeated while an experiment grows: group sequential tests by alpha spending.
// Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", Biometrika 70;
// Jennison and Turnbull (2000), "Group Sequential Methods with Applications to Clinical Trials",
// chapter 7 and, for the numerical integration, chapter 19.
namespace keel {

// The looks at one test, up to the present one. At a look the test's statistic is nearly normal,
// and its increments are independent: more documents are added to those of the look before.
//
// The spending function is that of the O'Brien-Fleming type: up to the information fraction t, each
// side of a two-sided test of level a may reject with probability 2 - 2 F(z / sqrt(t)), where F is
// the normal distribution and z its 1 - a/4 quantile. At t = 1 this is a/2. So early looks need a
// very small p, and the last look needs almost the level itself.
class SpendingLooks {
  public:
    // `fractions`: documents at each look / planned documents, rising, above 0 and at most 1. The
    // last one is the present look. Throws Error(runtime) for others.
    explicit SpendingLooks(std::vector<double> fractions);

    // The two-sided level for the p of the present look, if all looks together have the level
    // `level`, from 0 to 0.5.
    double nominal(double level) const;

    // The sequential p-value (Liu and Anderson 2008): the least level at which the present look
    // rejects, if `p` is the p of this look alone. It is valid at every look, so p-values of
    // several tests can be adjusted by Holm's method. 1 if no level up to 0.5 rejects.
    double sequential_p(double p) const;

  private:
    double boundary(double level) const; // of the normal statistic

    std::vector<double> fractions_;
    // Levels up to 0.5 and their nominal(), both as logarithms, which are interpolated. So p is at
    // most nominal(level) exactly if sequential_p(p) is at most the level. Empty for a single look
    // at fraction 1.
    std::vector<double> levels_, nominals_;
};

} // namespace keel
