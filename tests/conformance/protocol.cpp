#include "conformance/protocol.hpp"

namespace keel::conformance {

Report check_protocol(const Library &, const Params &, const Options &) {
    return {};
}

} // namespace keel::conformance
