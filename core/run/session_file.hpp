#pragma once

#include "run/session.hpp"
#include "text/sampler.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace keel {

// The extras: the content of a session file besides the session itself.
struct SessionExtras {
    std::optional<Rng::State> random;         // state of the sampler
    std::map<std::string, std::string> notes; // texts that a program adds, by name
};

// Throws Error(plugin) if sessions of this pipeline cannot be saved. So the caller learns this
// before the run.
void check_savable(const Pipeline &pipeline);

// Throws Error(input) if `path` exists and is not a saved session, because save_session() would not
// replace it.
void check_replaceable(const std::filesystem::path &path);

// Writes a session to a file: cache, positions, tokens and the state of the policy. The file also
// has values by which load_session() checks that a pipeline fits:
// - the values of the model's config that change the results, and a fingerprint of the weights
// - the tokenizer
// - the types of weights, keys and values
// - the policy and its parameters
// The file is written under another name in the same folder and then renamed. So an incomplete file
// never has the name `path`. Only the owner of the file has the right to read it, because the file
// contains the text. An existing file is replaced only if it is a saved session, see
// check_replaceable(). Throws Error(runtime) if the file cannot be written. Throws Error(plugin) if
// the policy has state and cannot save this state.
void save_session(Session &session, const std::filesystem::path &path,
                  const SessionExtras &extras = {});

// Replaces the content of `session` by a saved session. Throws Error(input) with the reason if the
// file is no session, is damaged, or comes from another model, other types or another policy. After
// this error the session has not changed. There is one exception: if the checksum of the file is
// right but its content is invalid, the session is empty after the error. load_session() calls
// `check` with the extras before the session changes. `check` can throw to refuse the file.
SessionExtras load_session(Session &session, const std::filesystem::path &path,
                           const std::function<void(const SessionExtras &)> &check = {});

} // namespace keel
