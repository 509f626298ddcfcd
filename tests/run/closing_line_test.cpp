#include "run/report.hpp"

#include <catch2/catch.hpp>

using namespace keel;

TEST_CASE("the closing line has the time to the first token if there was one") {
    GenerateResult result;
    result.ids = {5, 6};
    result.first_token_seconds = 0.012;
    result.stats.prefill_tokens = 3;
    result.stats.decode_tokens = 1;
    CHECK_THAT(closing_line(result),
               Catch::StartsWith("time to first token 12 ms | prefill 3 tokens, "));

    GenerateResult cancelled; // cancelled during the prefill
    cancelled.reason = StopReason::cancelled;
    cancelled.stats.prefill_tokens = 512;
    CHECK_THAT(closing_line(cancelled), Catch::StartsWith("prefill 512 tokens, "));
}

TEST_CASE(
    "the closing line counts the steps that were queued ahead, and those that were discarded") {
    GenerateResult result;
    result.stats.decode_tokens = 9;
    CHECK_THAT(closing_line(result), !Catch::Contains("ahead"));
    result.stats.ahead_steps = 8;
    CHECK_THAT(closing_line(result), Catch::EndsWith(" | decode steps queued ahead: 8 of 9"));
    result.stats.discarded_steps = 1;
    CHECK_THAT(closing_line(result),
               Catch::EndsWith(" | decode steps queued ahead: 8 of 9, 1 more discarded"));
    result.stats.replay_parts = 1;
    result.stats.decode_stream.replays = 10;
    CHECK_THAT(closing_line(result), Catch::EndsWith(" | decode steps replayed: 10 of 10"));
}

TEST_CASE("the closing line counts replayed steps if the backend can replay, otherwise it gives "
          "the reason") {
    GenerateResult result;
    result.stats.decode_tokens = 9;
    CHECK_THAT(closing_line(result), !Catch::Contains("replayed"));
    result.stats.replay_parts = 1;
    result.stats.decode_stream.replays = 7;
    CHECK_THAT(closing_line(result), Catch::EndsWith(" | decode steps replayed: 7 of 9"));
    result.stats.decode_stream.replays = 0;
    result.stats.no_replay = "sync.replay: off";
    CHECK_THAT(closing_line(result),
               Catch::EndsWith(" | decode steps replayed: 0 of 9 (sync.replay: off)"));
}

TEST_CASE(
    "the closing line has the bytes of cache and policy, their common peak, and the freed bytes") {
    GenerateResult result;
    SessionStats &s = result.stats;
    s.kv_bytes = 4 * 1024 * 1024;
    s.held_peak_bytes = 4 * 1024 * 1024;
    CHECK_THAT(closing_line(result),
               Catch::Contains(" | cache 4.0 MiB (peak 4.0 MiB) | 0 evictions | "));
    s.policy_bytes = 96 * 1024;
    s.policy_peak_bytes = 512 * 1024;
    s.held_peak_bytes = 10 * 1024 * 1024;
    s.freed_bytes = 6 * 1024 * 1024;
    s.evictions = 1;
    s.evicted_tokens = 281;
    s.eviction_seconds = 0.0125;
    CHECK(s.held_bytes() == (4 * 1024 + 96) * 1024);
    CHECK_THAT(closing_line(result),
               Catch::Contains(" | cache 4.0 MiB + policy 96.0 KiB (peak 10.0 MiB, 6.0 MiB freed) "
                               "| 1 eviction of 281 tokens, 12.5 ms | "));
    s.policy_bytes = 0; // the memory was given back
    CHECK_THAT(closing_line(result), Catch::Contains(" | cache 4.0 MiB + policy 0 "));
}
