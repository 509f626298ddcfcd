#include "base/error.hpp"

namespace keel {

int Error::exit_code() const noexcept {
    switch (kind_) {
    case ErrorKind::usage:
    case ErrorKind::input:
    case ErrorKind::plugin:
    case ErrorKind::resource: return 2;
    case ErrorKind::runtime:
    case ErrorKind::internal: break;
    }
    return 1;
}

} // namespace keel
