// Used on architectures that have only the baseline loops.
#include "eval/bench/probes/kernels.hpp"

namespace keel {

const ProbeKernels &best_probe_kernels() { return baseline_probe_kernels(); }

} // namespace keel
