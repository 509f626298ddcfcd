#include "run/sequence_text.hpp"

namespace keel {

void SequenceText::clear() {
    tokens_.clear();
    pending_.reset();
    loaded_from_.clear();
}

void SequenceText::save(StateWriter &out) const {
    out.put(static_cast<uint64_t>(tokens_.size()));
    out.put_all<int32_t>(tokens_);
    out.put(pending_.value_or(-1));
}

void SequenceText::load(StateReader &in, int64_t vocabulary) {
    const auto check = [&](int32_t id) {
        if (id >= vocabulary)
            in.fail("token {}: the model's vocabulary ends at {}", id, vocabulary - 1);
    };
    const auto count = in.get<uint64_t>("the tokens so far");
    in.get_all<int32_t>(tokens_, count, "the tokens so far");
    for (const int32_t id : tokens_) {
        if (id < 0) in.fail("token {}: the model's vocabulary ends at {}", id, vocabulary - 1);
        check(id);
    }
    const auto pending = in.get<int32_t>("the token to go on with");
    check(pending);
    if (pending >= 0) pending_ = pending;
    loaded_from_ = in.name();
}

void SequenceText::copy(const SequenceText &other) {
    assign(other.tokens_);
    pending_ = other.pending_;
    loaded_from_ = other.loaded_from_;
}

} // namespace keel
