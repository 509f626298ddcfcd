#include "conformance/protocol.hpp"

#include "conformance/facts.hpp"

#include <thread>

namespace keel::conformance {
namespace {

// Runs some cases of a few ops on two contexts.
void sample(Facts &facts, Side &subject, Side &oracle, Options options, uint64_t seed) {
    options.quick = true;
    options.every = 29;
    options.seed = seed;
    for (const keel_op op : {KEEL_OP_MATMUL, KEEL_OP_RMS_NORM, KEEL_OP_ATTENTION, KEEL_OP_KV_APPEND,
                             KEEL_OP_KV_GATHER, KEEL_OP_TOP_K_ROWS}) {
        if (!has_op(subject.table(), op)) continue;
        Suite suite(subject, oracle, options);
        cases_of(suite, op);
        facts.take(op_name(op), suite.report());
    }
}

void check_threads(Facts &facts, const Library &library, const Params &params,
                   const Options &options) {
    const Library reference("reference");
    Facts first(options.max_messages), second(options.max_messages);
    std::string trouble;
    const auto work = [&](Facts &mine, uint64_t seed) {
        try {
            Side subject(library, params);
            Side oracle(reference, {});
            sample(mine, subject, oracle, options, seed);
        } catch (const Unusable &unusable) {
            mine.expect(false, unusable.why);
        }
    };
    std::thread other([&] { work(second, 22); });
    work(first, 11);
    other.join();
    facts.take("in one of two threads", first.report());
    facts.take("in the other of two threads", second.report());

    Side subject(library,
                 params); // one thread creates the context, another thread uses it
    Side oracle(reference, {});
    std::thread elsewhere([&] { sample(facts, subject, oracle, options, 33); });
    elsewhere.join();
    sample(facts, subject, oracle, options, 44);
}

void check_leaks(Facts &facts, const Library &library, const Params &params,
                 const Options &options) {
    const Library reference("reference");
    test::TestHost host;
    for (int i = 0; i < 20; ++i)
        try_host(facts, library, params, host.table(), "one of many contexts");
    facts.expect(host.live_allocations() == 0, "contexts do not free all memory of the host");
    Side subject(library, params);
    Side oracle(reference, {});
    sample(facts, subject, oracle, options,
           55); // the first round does not count, because the backend can keep scratch memory
    const uint64_t held = subject.bytes_held();
    const uint64_t live = subject.host().live_allocations();
    for (int i = 0; i < 3; ++i) sample(facts, subject, oracle, options, 55);
    facts.expect(subject.bytes_held() == held,
                 fmt::format("mem_info.ours grows from {} to {} if the same work is repeated", held,
                             subject.bytes_held()));
    facts.expect(subject.host().live_allocations() == live,
                 "the host's allocations grow if the same work is repeated");
}

} // namespace

Report check_protocol(const Library &library, const Params &params, const Options &options) {
    Facts facts(options.max_messages);
    check_plugin(facts, library.plugin());
    check_slots(facts, library.table());
    {
        Side side(library, params);
        check_devices(facts, library, params, side);
        check_out_structs(facts, side);
        check_descriptions(facts, library, params, side);
        check_buffers(facts, side);
        check_mapped(facts, side);
        check_stream(facts, side);
        check_recordings(facts, library, side);
        check_times(facts, library, side);
        check_later_reads(facts, library, side);
    }
    check_hosts(facts, library, params);
    check_threads(facts, library, params, options);
    check_leaks(facts, library, params, options);
    return facts.report();
}

} // namespace keel::conformance
