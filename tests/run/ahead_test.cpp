// Tests of greedy steps that are queued before their token is read (sync.ahead). Results, cache and
// counters must be the same as without them, and a step that is taken back must leave no trace. The
// backend runs asynchronously, like a GPU.
#include "ahead_rig.hpp"
#include "run/report.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"
#include "text/logprobs.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <limits>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

TEST_CASE("steps that are queued ahead give the same text under every policy, and are counted") {
    struct Cell {
        std::vector<std::string> sets;
        bool runs_ahead;
    };
    const auto policy = [](const std::string &name, std::vector<std::string> more) {
        more.insert(more.begin(), "policy.plugin=" + name);
        return more;
    };
    const std::vector<std::string> budget = {"policy.budget.tokens=24", "policy.budget.slack=4"};
    for (const Cell &cell : {
             Cell{{}, true}, Cell{{"kv.dtype=q8_0"}, true},
             Cell{{"sync={strategy: batched, ops: 7}"}, true}, Cell{{"sync.replay=off"}, true},
             Cell{{"sync=eager"}, false}, Cell{policy("sliding_window", budget), true},
             Cell{policy("sliding_window",
                         {"policy.budget.tokens=24", "policy.budget.slack=4",
                          "policy.positions=rerotated", "policy.protect.prefix=2"}),
                  true},
             Cell{policy("sliding_window", {"policy.budget.tokens=24", "policy.budget.slack=0"}),
                  false},
             Cell{policy("sliding_window",
                         {"policy.budget.tokens=24", "policy.trigger.on=[every_n, insert]",
                          "policy.trigger.every_n=5"}),
                  true},
             Cell{policy("random", budget), true}, Cell{policy("knorm", budget), true},
             Cell{policy("h2o", budget), false}, // h2o sums the scores of each step
             Cell{policy("tova", budget), true}, // the step before an eviction has scores
         }) {
        INFO(fmt::format("{}", fmt::join(cell.sets, " ")));
        const Story ahead = tell(cell.sets), plain = off(cell.sets);
        check_same(ahead, plain);
        CHECK((ahead.first.stats.ahead_steps > 0) == cell.runs_ahead);
        CHECK(ahead.first.stats.discarded_steps ==
              0); // the end of a text with a fixed length is known in advance
        const Stream::Counters a = ahead.first.stats.decode_stream,
                               b = plain.first.stats.decode_stream;
        CHECK(a.waits == b.waits);
        CHECK(a.ops == b.ops);
        CHECK(a.reads == b.reads);
        CHECK(a.replays == b.replays);
        if (cell.sets.empty()) {
            CHECK(ahead.first.stats.decode_tokens == 39);
            // all steps except the first, and except steps that need a new block
            CHECK(ahead.first.stats.ahead_steps >= 37);
            CHECK(a.waits == 39);
            CHECK(a.submits == 39);
            CHECK(b.submits == 39);
            CHECK_THAT(closing_line(ahead.first),
                       Contains(fmt::format(" | decode steps queued ahead: {} of 39",
                                            ahead.first.stats.ahead_steps)));
            CHECK_THAT(closing_line(plain.first), !Contains("ahead"));
        }
    }
}

TEST_CASE("a text that ends unexpectedly leaves no trace of the step that was queued ahead") {
    for (const std::vector<std::string> &sets :
         {std::vector<std::string>{},
          {"kv.dtype=q4_0", "sync={strategy: batched, ops: 9}"},
          {"policy.plugin=sliding_window", "policy.budget.tokens=24", "policy.budget.slack=6"},
          {"policy.plugin=sliding_window", "policy.budget.tokens=24", "policy.budget.slack=6",
           "policy.positions=rerotated"}}) {
        INFO(fmt::format("{}", fmt::join(sets, " ")));
        const GenerateResult whole = off(sets).first;
        for (const size_t at : {0, 1, 2, 7, 17}) {
            INFO("token " << at);
            const Change ends = [&](GenerateOptions &o, Pipeline &) {
                o.ignore_end = false;
                o.end_ids = {whole.ids[at]};
            };
            const Story ahead = tell(sets, ends);
            check_same(ahead, off(sets, ends));
            CHECK(ahead.first.reason == StopReason::end_token);
            CHECK(ahead.first.stats.discarded_steps <= 1);
            if (sets.empty() && ahead.first.ids.size() > 1) {
                CHECK(ahead.first.stats.discarded_steps == 1);
                CHECK_THAT(closing_line(ahead.first), Contains(", 1 more discarded"));
            }
            const Change stops = [&](GenerateOptions &o, Pipeline &) {
                o.stop = {whole.text.substr(whole.text.size() / 3 + at, 4)};
            };
            check_same(tell(sets, stops), off(sets, stops));
            const Change is_short = [&](GenerateOptions &o, Pipeline &) {
                o.max_tokens = static_cast<int64_t>(at);
            };
            const Story brief = tell(sets, is_short);
            check_same(brief, off(sets, is_short));
            CHECK(brief.first.stats.discarded_steps == 0);
            const Change cancels = [&, at](GenerateOptions &o, Pipeline &pipeline) {
                o.on_text = [&pipeline, at, n = size_t{0}](std::string_view) mutable {
                    if (n++ == at) pipeline.host().request_cancel();
                };
            };
            const Story cancelled = tell(sets, cancels);
            check_same(cancelled, off(sets, cancels));
            CHECK(cancelled.first.reason == StopReason::cancelled);
        }
    }
}

TEST_CASE("a full cache ends a text at the same token") {
    for (const std::vector<std::string> &sets :
         {std::vector<std::string>{"model.context=47"},
          {"model.context=64"},
          {"model.context=65"},
          {"kv.max_mib=0.4", "kv.dtype=f32", "model.context=400"},
          {"policy.plugin=sliding_window", "policy.budget.tokens=32", "policy.trigger.on=[insert]",
           "model.context=48"}}) {
        INFO(fmt::format("{}", fmt::join(sets, " ")));
        check_same(tell(sets, {}, 120), off(sets, {}, 120));
    }
}

TEST_CASE("any other call after a step ahead finds the session unchanged") {
    Beside device;
    Pipeline pipeline(config_of({}), device.options(3)), plain(config_of({}));
    const std::vector<int32_t> prompt = pipeline.tokenizer()->encode(hybrid_opening());
    Session a(pipeline), b(plain), other(pipeline);
    const auto begin = [&] {
        for (Session *s : {&a, &b}) {
            s->reset();
            s->prefill(prompt);
            s->decode(s->greedy());
        }
    };
    const auto same = [&] {
        CHECK(a.tokens() == b.tokens());
        CHECK((saved(a) == saved(b)));
        REQUIRE(
            std::equal(a.logits().begin(), a.logits().end(), b.logits().begin(), b.logits().end()));
        CHECK(a.stats().discarded_steps == 1);
    };
    begin();
    CHECK(a.greedy(true) == b.greedy());
    CHECK(a.cache().cache().max_length() == b.cache().cache().max_length() + 1);
    CHECK(a.greedy(true) == b.greedy()); // reads the token again
    a.drop_ahead();
    CHECK(a.cache().cache().max_length() == b.cache().cache().max_length());
    same(); // the logits are computed again
    begin();
    CHECK(a.greedy(true) == b.greedy());
    a.decode(7); // a token that is not the predicted one
    b.decode(7);
    same();
    begin();
    CHECK(a.greedy(true) == b.greedy());
    a.truncate(2);
    b.truncate(2);
    a.decode(9);
    b.decode(9);
    same();
    begin();
    CHECK(a.greedy(true) == b.greedy());
    a.prefill(std::vector<int32_t>{5, 6, 7});
    b.prefill(std::vector<int32_t>{5, 6, 7});
    same();
    begin();
    CHECK(a.greedy(true) == b.greedy());
    {
        const std::unique_ptr<Session> fork = a.fork();
        CHECK(fork->greedy() == b.greedy());
        fork->decode(3);
    }
    same();
    begin();
    const int32_t next = a.greedy(true);
    CHECK(next == b.greedy());
    other.prefill(std::vector<int32_t>{4, 5}); // a step of another sequence
    a.decode(next);
    b.decode(next);
    CHECK(a.greedy() == b.greedy());
    CHECK(a.stats().ahead_steps == 1);
    CHECK(a.stats().discarded_steps == 0);
    begin();
    a.greedy(true);
    a.reset();
    a.prefill(prompt);
    CHECK(a.cache().cache().max_length() == static_cast<int64_t>(prompt.size()));
}

TEST_CASE("texts that need all logits, or a device that waits in any case, run no step ahead") {
    const Change hot = [](GenerateOptions &o, Pipeline &) {
        o.sampling.temperature = 0.8F;
        o.sampling.seed = 3;
    };
    const Change told = [](GenerateOptions &o, Pipeline &) { o.logprobs = 2; };
    for (const Change &change : {hot, told}) {
        const Story story = tell({}, change);
        CHECK(story.first.stats.ahead_steps + story.first.stats.discarded_steps == 0);
        check_same(story, off({}, change));
    }
    Pipeline plain(config_of({})); // the cpu backend without the wrapper
    Session session(plain);
    GenerateOptions options = generate_options(plain.config());
    options.max_tokens = 5;
    CHECK(
        generate(session, plain.tokenizer()->encode(hybrid_opening()), options).stats.ahead_steps ==
        0);
    CHECK_THAT(plain.executor().why_not_ahead(), Contains("keel.read_later/1"));
}

TEST_CASE(
    "a logit that is not finite is reported as without steps ahead, and the cache is as long") {
    TempFolder folder;
    make_mini_llama(folder.path(), MiniLlama{});
    // Generates text after a short prompt. Stores the error if there is one.
    struct Run {
        std::vector<int32_t> ids;
        std::string error;
        int64_t tokens = 0, length = 0;
        uint64_t ahead = 0;
    };
    const auto run = [&](bool ahead) {
        Beside device;
        PipelineOptions options = device.options();
        options.need_tokenizer = false;
        Run r;
        const std::vector<std::string> sets = {
            "model.path=" + folder.path().string(), "backend={plugin: cpu, params: {threads: 1}}",
            "model.context=128", std::string("sync.ahead=") + (ahead ? "auto" : "off")};
        Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        Session session(pipeline);
        session.prefill(std::vector<int32_t>{1, 2, 3});
        try {
            for (int i = 0; i < 24; ++i) {
                r.ids.push_back(session.greedy(true));
                session.decode(r.ids.back());
            }
            session.drop_ahead();
        } catch (const Error &error) {
            r.error = error.what();
        }
        r.tokens = session.tokens();
        r.length = session.cache().cache().max_length();
        r.ahead = session.stats().ahead_steps;
        return r;
    };
    const Run sound = run(true);
    REQUIRE(sound.error.empty());
    CHECK(sound.ids == run(false).ids);
    size_t bad = 5; // a token that appears late and not before
    const auto first = [&](size_t i) {
        return std::find(sound.ids.begin(), sound.ids.end(), sound.ids[i]);
    };
    while (
        bad < sound.ids.size() &&
        (first(bad) != sound.ids.begin() + static_cast<std::ptrdiff_t>(bad) || sound.ids[bad] <= 3))
        ++bad;
    REQUIRE(bad < sound.ids.size());
    {
        auto source = open_model_source(folder.path());
        const TensorInfo *table = source->find("model.embed_tokens.weight");
        REQUIRE(table != nullptr);
        const uint64_t row =
            keel_dtype_row_bytes(table->dtype, static_cast<uint64_t>(source->config().hidden_size));
        const uint64_t at = table->offset + static_cast<uint64_t>(sound.ids[bad]) * row;
        const std::string file = source->file(*table).path();
        source.reset();
        std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(static_cast<std::streamoff>(at));
        const std::vector<unsigned char> nan(static_cast<size_t>(row), 0xff);
        out.write(reinterpret_cast<const char *>(nan.data()),
                  static_cast<std::streamsize>(nan.size()));
        REQUIRE(out.flush());
    }
    const Run ahead = run(true), plain = run(false);
    CHECK_THAT(plain.error, Contains("embedding at position"));
    CHECK(ahead.error == plain.error);
    CHECK(ahead.ids == plain.ids);
    CHECK(ahead.ids.size() == bad + 1);
    CHECK(ahead.tokens == plain.tokens);
    CHECK(ahead.length == plain.length);
    CHECK(ahead.ahead > 0);
}

// ---- hybrids ------------------------------------------------------------------------------------

TEST_CASE("a hybrid's sequence moves between two steps, not during a step ahead") {
    const GenerateResult alone = [] {
        Pipeline pipeline(config_of({}));
        Session session(pipeline);
        GenerateOptions options = generate_options(pipeline.config());
        options.max_tokens = 40;
        options.ignore_end = true;
        return generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
    }();
    for (const char *warmup : {"0", "3"}) {
        INFO(warmup);
        Beside device;
        Pipeline pipeline(
            two({"hybrid.prefill=a", "hybrid.decode=a", "hybrid.switch.on=[tokens, command]",
                 "hybrid.switch.after_tokens=17", "hybrid.switch.to=b",
                 std::string("hybrid.switch.warmup_tokens=") + warmup}),
            with(device.cpu, "a"));
        Session session(pipeline);
        GenerateOptions options = generate_options(pipeline.config());
        options.max_tokens = 40;
        options.ignore_end = true;
        const GenerateResult result =
            generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
        CHECK(result.ids == alone.ids);
        REQUIRE(result.stats.moves.size() == 1);
        CHECK(result.stats.ahead_steps > 9);
        CHECK(result.stats.discarded_steps == 0); // the time of the move is known in advance
        CHECK(session.engine().name == "b");
    }
}

TEST_CASE("if the device is lost during a step ahead, a hybrid continues with the same text") {
    const std::vector<int32_t> whole = off({}).first.ids;
    for (const char *slot : {"argmax_rows", "flush", "buffer_write", "read_later_start",
                             "read_later_finish", "replay_submit"}) {
        for (const uint64_t nth : {5, 12}) {
            INFO(slot << " " << nth);
            Beside device;
            {
                Pipeline pipeline(
                    two({"hybrid.prefill=a", "hybrid.decode=a", "hybrid.switch.on=command"}),
                    with(device.cpu, "a"));
                Session session(pipeline);
                GenerateOptions options = generate_options(pipeline.config());
                options.max_tokens = 40;
                options.ignore_end = true;
                options.on_text = [&, armed = false](std::string_view) mutable {
                    if (!std::exchange(armed, true))
                        device.cpu.backend.fail_nth(nth, KEEL_E_DEVICE_LOST, slot);
                };
                const GenerateResult result =
                    generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
                CHECK(result.ids == whole);
                CHECK(device.cpu.backend.fault_fired());
                CHECK(result.stats.decode_tokens == 39);
                REQUIRE(result.stats.moves.size() == 1);
                CHECK(result.stats.moves[0].why == BackendMove::Why::lost);
            }
            CHECK(device.cpu.backend.calls_after_loss() == 0);
        }
    }
}

TEST_CASE("layers on two backends run no step ahead, and give the same text") {
    Beside device;
    Pipeline pipeline(two({"hybrid.layers=[{range: 0-2, on: a}, {range: 3-5, on: b}]"}),
                      with(device.cpu, "a"));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 12;
    options.ignore_end = true;
    const GenerateResult result =
        generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
    CHECK(result.stats.ahead_steps == 0);
    const std::vector<int32_t> whole = off({}).first.ids;
    CHECK(std::equal(result.ids.begin(), result.ids.end(), whole.begin()));
}
