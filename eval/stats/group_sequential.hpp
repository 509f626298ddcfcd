#pragma once

#include <vector>

// Tests that are repeated while an experiment grows: group sequential tests by alpha spending.
// Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", Biometrika 70;
// Jennison and Turnbull (2000), "Group Sequential Methods with Applications to Clinical Trials",
// chapter 7 and, for the numerical integration, chapter 19.
namespace keel {

// The looks at one test, up to the present look. At a look the test's statistic is nearly normal.
// The increments of the statistic are independent, because each look adds documents to the
// documents of the look before.
//
// The spending function is of the O'Brien-Fleming type. The spending function limits the
// probability with which each side of a two-sided test of level a rejects up to the information
// fraction t. The limit is 2 - 2 F(z / sqrt(t)). F is the normal distribution, and z is the 1 - a/4
// quantile of F. At t = 1 the limit is a/2. So an early look rejects only for a very small p. The
// last look rejects if p is a little smaller than the level.
class SpendingLooks {
  public:
    // `fractions` has one number for each look: the documents at the look / the planned documents.
    // The fractions rise, and are above 0 and at most 1. The last fraction is the present look.
    // Throws Error(runtime) if the fractions do not have this form.
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
