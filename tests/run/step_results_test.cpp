// Tests which results of a sequence's last step can still be read.
#include "run/step_results.hpp"

#include <catch2/catch.hpp>

using namespace keel;

namespace {

const std::vector<float> two_rows = {1, 2, 3, 4};

} // namespace

TEST_CASE("a step that begins has no results yet") {
    Engine engine;
    StepResults results;
    CHECK(results.holder() == nullptr);
    results.begin(engine, 2);
    results.put_logits(two_rows);
    results.put_token(7);
    results.set_first_row(3);
    results.set_overwritten(true);
    Engine other;
    results.begin(other, 1);
    CHECK(results.holder() == &other);
    CHECK(results.rows() == 1);
    CHECK(results.first_row() == 0);
    CHECK_FALSE(results.has_logits());
    CHECK_FALSE(results.next_token());
    CHECK_FALSE(results.has_pending_read());
    CHECK_FALSE(results.is_overwritten());
}

TEST_CASE("a step without rows of logits has none to read, and needs no device") {
    Engine engine; // an engine without a graph
    StepResults results;
    results.begin(engine, 0);
    CHECK(results.read_logits(1000).empty());
    CHECK(results.has_logits());
}

TEST_CASE("rejected logits must be read again") {
    Engine engine;
    StepResults results;
    results.begin(engine, 2);
    results.put_logits(two_rows);
    CHECK(results.has_logits());
    CHECK(std::vector(results.logits().begin(), results.logits().end()) == two_rows);
    results.reject_logits();
    CHECK_FALSE(results.has_logits());
    CHECK(results.rows() == 2);
}

TEST_CASE("a forgotten step counts as a step without rows") {
    Engine engine;
    StepResults results;
    results.begin(engine, 2);
    results.put_logits(two_rows);
    results.forget();
    CHECK(results.rows() == 0);
    CHECK(results.logits().empty());
    CHECK(results.has_logits()); // there is nothing left to read
}

TEST_CASE("a lost device loses results that were not read, and leaves the others") {
    Engine engine;
    StepResults results;
    results.begin(engine, 2);
    results.put_logits(two_rows);
    results.set_overwritten(true);
    results.forget_on_device();
    CHECK_FALSE(results.is_overwritten());
    CHECK(results.has_logits());
    CHECK(results.logits().size() == 4);
}

TEST_CASE("a fork has the logits of its parent, but not its token") {
    Engine engine;
    StepResults parent, fork;
    parent.begin(engine, 2);
    parent.put_logits(two_rows);
    parent.put_token(7);
    fork.copy_logits(parent);
    parent.forget();
    CHECK(fork.holder() == &engine);
    CHECK(fork.rows() == 2);
    CHECK(fork.has_logits());
    CHECK(std::vector(fork.logits().begin(), fork.logits().end()) == two_rows);
    CHECK_FALSE(fork.next_token());
}

TEST_CASE("overwritten logits are lost only if they were not read before") {
    Engine engine, other;
    StepResults read, unread;
    for (StepResults *results : {&read, &unread}) {
        results->begin(engine, 1);
        results->set_overwritten(true);
    }
    read.put_logits({two_rows.data(), 2});
    read.give_up_overwritten();
    CHECK(read.rows() == 1);
    CHECK(read.logits().size() == 2);
    unread.begin_repeat(other); // the logits are computed again on the other engine
    CHECK(unread.holder() == &other);
    CHECK(unread.is_overwritten());
    unread.give_up_overwritten();
    CHECK(unread.rows() == 0);
    CHECK_FALSE(unread.is_overwritten());
}
