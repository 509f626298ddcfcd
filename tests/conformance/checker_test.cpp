// Tests of the conformance checker. If a backend has one fault, the checker must report the op or
// rule that the fault breaks.
#include "conformance/attention_dense.hpp"
#include "conformance/faulty_backend.hpp"
#include "conformance/protocol.hpp"
#include "conformance/suite.hpp"

#include <catch2/catch.hpp>

using namespace keel::conformance;

namespace {

Report run_op(Fault fault, keel_op op, bool complete = false) {
    const Library library(faulty_plugin(fault));
    const Library reference("reference");
    Side subject(library, {});
    Side oracle(reference, {});
    Options options;
    options.complete = complete;
    Suite suite(subject, oracle, options);
    cases_of(suite, op);
    return suite.report();
}

Report run_dense(Fault fault) {
    const Library library(faulty_plugin(fault));
    return check_attention_dense(library, {}, {});
}

// Returns the first message, or "" if no fault was found.
std::string first_message(const Report &report) {
    return report.messages.empty() ? "" : report.messages[0];
}

Report run_protocol(Fault fault) {
    const Library library(faulty_plugin(fault));
    return check_protocol(library, {}, {});
}

} // namespace

TEST_CASE("the checker finds no fault in a correct backend") {
    for (keel_op op = 1; op <= last_op; ++op) {
        INFO(op_name(op));
        const Report report = run_op(Fault::nothing, op, true);
        CHECK(first_message(report) == "");
        CHECK(report.cases > 20);
    }
    CHECK(first_message(run_protocol(Fault::nothing)) == "");
}

TEST_CASE("the checker finds wrong numbers, even for one size and slightly above the bound") {
    const std::string wrong_size = first_message(run_op(Fault::one_wrong_size, KEEL_OP_MATMUL));
    CHECK_THAT(wrong_size, Catch::Contains("n=33") && Catch::Contains("times the bound"));
    CHECK_THAT(first_message(run_op(Fault::slightly_off, KEEL_OP_RMS_NORM)),
               Catch::Contains("times the bound"));
    CHECK_THAT(first_message(run_op(Fault::hides_nan, KEEL_OP_ADD)),
               Catch::Contains("expected nan") || Catch::Contains("expected -nan"));
    CHECK_THAT(first_message(run_op(Fault::swaps_ties, KEEL_OP_ARGMAX_ROWS)),
               Catch::Contains("expected"));
    CHECK(run_op(Fault::ignores_scales, KEEL_OP_CAST).failures > 0);
}

TEST_CASE("the checker finds writes outside of the output") {
    CHECK_THAT(first_message(run_op(Fault::writes_past_the_end, KEEL_OP_SCALE)),
               Catch::Contains("outside of the output view"));
    CHECK_THAT(first_message(run_op(Fault::writes_between_rows, KEEL_OP_COPY)),
               Catch::Contains("outside of the output view"));
    CHECK_THAT(first_message(run_op(Fault::writes_to_input, KEEL_OP_ADD)),
               Catch::Contains("input was written to"));
    CHECK_THAT(first_message(run_op(Fault::refuses_late, KEEL_OP_SOFTMAX)),
               Catch::Contains("refused, but a tensor was written"));
}

TEST_CASE("the checker finds an ignored feature, length or block table") {
    CHECK_THAT(first_message(run_op(Fault::ignores_features, KEEL_OP_SILU_MUL)),
               Catch::Contains("unknown feature bit"));
    CHECK(run_op(Fault::reads_beyond_length, KEEL_OP_ATTENTION).failures > 0);
    CHECK(run_op(Fault::ignores_block_table, KEEL_OP_KV_APPEND).failures > 0);
}

TEST_CASE("the checker finds a missing refusal") {
    CHECK_THAT(first_message(run_op(Fault::casts_any_type, KEEL_OP_CAST)),
               Catch::Contains("expected a refusal"));
}

TEST_CASE("the checker finds a plan that fixes a number that calls may change") {
    CHECK(run_op(Fault::settles_rows, KEEL_OP_SCALE).failures > 0);
}

TEST_CASE("faults of dense attention are found") {
    CHECK(first_message(run_dense(Fault::nothing)) == "");
    CHECK_THAT(first_message(run_dense(Fault::dense_sees_later_keys)),
               Catch::Contains("out[") && Catch::Contains("expected"));
    CHECK_THAT(first_message(run_dense(Fault::dense_drops_others)), Catch::Contains("d_"));
    CHECK_THAT(first_message(run_dense(Fault::dense_takes_any_scale)),
               Catch::Contains("a scale of NaN: expected a refusal"));
}

TEST_CASE("the checker finds faults in other functions than ops") {
    CHECK_THAT(first_message(run_protocol(Fault::accepts_any_ticket)),
               Catch::Contains("a ticket that flush did not return"));
    CHECK_THAT(first_message(run_protocol(Fault::writes_whole_out_struct)),
               Catch::Contains("after the end of an out-struct"));
    CHECK_THAT(first_message(run_protocol(Fault::leaks_buffers)),
               Catch::Contains("does not return to the earlier value"));
    CHECK_THAT(first_message(run_protocol(Fault::refuses_newer_host)),
               Catch::Contains("newer host"));
}
