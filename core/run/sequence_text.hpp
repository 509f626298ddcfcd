#pragma once

#include "kv/store/state_io.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel {

// The tokens of a sequence that were read or generated, and the token with which the sequence
// continues.
class SequenceText {
  public:
    // `context`: the number of tokens for which memory is reserved, so that a decode step allocates
    // no memory.
    explicit SequenceText(int64_t context) { tokens_.reserve(static_cast<size_t>(context)); }

    std::span<const int32_t> tokens() const { return tokens_; }
    int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
    // Adds the tokens of a step. The pending token is cleared.
    void append(std::span<const int32_t> ids) {
        pending_.reset();
        tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    }
    // Removes the last n tokens, and clears the pending token.
    void remove_last(int64_t n) {
        tokens_.resize(tokens_.size() - static_cast<size_t>(n));
        pending_.reset();
    }
    // Replaces all tokens. The pending token stays.
    void assign(std::span<const int32_t> ids) { tokens_.assign(ids.begin(), ids.end()); }
    void clear();

    // The token that was generated last, if no step has read it yet.
    std::optional<int32_t> pending() const { return pending_; }
    void set_pending(std::optional<int32_t> id) { pending_ = id; }
    // The session file from which the first tokens were loaded. Empty if no file was loaded.
    const std::string &loaded_from() const { return loaded_from_; }

    void save(StateWriter &out) const;
    // Throws Error(input) if a token is not below `vocabulary`.
    void load(StateReader &in, int64_t vocabulary);
    void copy(const SequenceText &other);

  private:
    std::vector<int32_t> tokens_;
    std::optional<int32_t> pending_;
    std::string loaded_from_;
};

} // namespace keel
