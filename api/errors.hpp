#pragma once

#include <keel/keel.hpp>

#include "base/display.hpp"
#include "base/error.hpp"

#include <exception>
#include <new>

namespace keel::api {

inline ErrorKind kind_of(keel::ErrorKind kind) {
    switch (kind) {
    case keel::ErrorKind::usage: return ErrorKind::usage;
    case keel::ErrorKind::input: return ErrorKind::input;
    case keel::ErrorKind::plugin: return ErrorKind::plugin;
    case keel::ErrorKind::resource: return ErrorKind::resource;
    case keel::ErrorKind::runtime: return ErrorKind::runtime;
    case keel::ErrorKind::internal: break;
    }
    return ErrorKind::internal;
}

// Carries an exception of a user's callback through the core. The core never throws this type
// itself.
struct CallbackThrew {
    std::exception_ptr what;
};

template <typename Action> void call_back(Action &&action) {
    try {
        action();
    } catch (...) {
        throw CallbackThrew{std::current_exception()};
    }
}

// Runs the action and converts errors of the core to errors of the API. An exception of a user's
// callback passes through unchanged.
template <typename Action> auto covered(Action &&action) {
    try {
        return action();
    } catch (const keel::Error &e) {
        throw Error(kind_of(e.kind()), e.what());
    } catch (const CallbackThrew &callback) {
        std::rethrow_exception(callback.what);
    } catch (const std::bad_alloc &) {
        throw Error(ErrorKind::resource, "out of memory");
    } catch (const std::exception &e) { // the core should throw only its own error types
        throw Error(ErrorKind::internal,
                    "an error that Keel did not expect: " + printable(e.what(), 400));
    }
}

} // namespace keel::api
