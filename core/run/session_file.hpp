#pragma once

#include "run/session.hpp"
#include "text/sampler.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace keel {

// What stands in a session file beside the session itself.
struct SessionExtras {
    std::optional<Rng::State> random;         // of the sampler
    std::map<std::string, std::string> notes; // a program's own, by name
};

// Throws Error(plugin) if sessions of this pipeline cannot be saved: save_session() would, later.
void check_savable(const Pipeline &pipeline);

// Throws Error(input) if `path` is a file that is there already and holds no saved session:
// save_session() would not replace it.
void check_replaceable(const std::filesystem::path &path);

// Writes a session to a file: cache, positions, tokens, the policy's state, and what tells that
// another pipeline fits (all that the model computes with, a fingerprint of its weights, its
// tokenizer, types of weights, keys and values, policy with parameters). The file appears whole or
// not at all: it is written beside and renamed. Only its owner may read it, because it holds the
// text. Of what is there already only a saved session is replaced, see check_replaceable(). Throws
// Error(runtime) where it cannot be written, Error(plugin) for a policy that has state and cannot
// save it.
void save_session(Session &session, const std::filesystem::path &path,
                  const SessionExtras &extras = {});

// Takes a saved session in, in the place of what `session` holds. Throws Error(input) with the
// reason if the file is no session, is damaged, or comes from another model, other types or another
// policy: the session is as it was then. Where the file's checksum is right and its content still
// cannot be, the session is empty after the error. `check` may refuse what stands beside the
// session before the session changes, by throwing.
SessionExtras load_session(Session &session, const std::filesystem::path &path,
                           const std::function<void(const SessionExtras &)> &check = {});

} // namespace keel
