#pragma once

#include "eval/ab/run/item_context.hpp"

#include <span>
#include <vector>

namespace keel::ab {

// Scores how well an arm predicts the text after a prompt. Texts run one after the other, or
// several at the same time in a batch. The reference must run first, because all later runs are
// compared with the reference's logits.
class Continuations {
  public:
    explicit Continuations(ItemContext &context) : context_(context) {}
    ~Continuations();

    // Call this before the first run of new members. The function drops the reference's logits of
    // the old members.
    void begin() { reference_logits_.clear(); }
    void run(const PlannedTask &task, const Place &place, size_t run,
             std::span<const Member> members);

  private:
    struct Scored;
    bool wants_logits(const Place &place, std::span<const Member> members) const;
    void make_room_for_logits(const Place &place, size_t run, std::span<const Member> members);
    void take_rows(Scored &scored, size_t tokens, bool is_reference);
    void write_scores(const Place &place, Scored &scored);

    ItemContext &context_;
    // The reference's logits for each current member, [scored tokens, vocab].
    std::vector<std::vector<float>> reference_logits_;
};

// Throws Error(input) if the reference's logits of a batch would need too much memory. The function
// is called before the first measurement. If a later batch caused the error, the experiment could
// end after hours. The user could not continue these results with a smaller `batch`, because Keel
// refuses results of another batch size.
void check_room_for_logits(const PlannedTask &task, Arms &arms);

} // namespace keel::ab
