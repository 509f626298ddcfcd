#include "ops.hpp"

namespace keel_opencl {

Form form_of(keel_ctx &ctx, Family family) {
    return ctx.forms[static_cast<size_t>(family)];
}

} // namespace keel_opencl
