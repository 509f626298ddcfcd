// Parts of the server without sockets.
#include "server/service/aliases.hpp"
#include "server/service/auth.hpp"
#include "server/service/metrics.hpp"
#include "server/service/token_text.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>
#include <limits>

using namespace keel::server;

TEST_CASE("an unlikely token has a finite log probability") {
    CHECK(shown_logprob(-std::numeric_limits<double>::infinity()) == -9999.0);
    CHECK(shown_logprob(std::numeric_limits<double>::quiet_NaN()) == -9999.0);
    CHECK(shown_logprob(-20000) == -9999.0);
    CHECK(shown_logprob(-3.5) == -3.5);
}

TEST_CASE("the value of a token is the value that the list of likely tokens has") {
    keel::api::Logprobs token;
    token.chosen = {3, -0.1000000001};
    token.top = {{3, -0.1}, {4, -2}};
    CHECK(chosen_logprob(token) == -0.1);
    token.top = {{5, -0.1}};
    CHECK(chosen_logprob(token) == -0.1000000001);
}

TEST_CASE("keys are equal only if all bytes are equal") {
    CHECK(equal_in_constant_time("abc", "abc"));
    CHECK_FALSE(equal_in_constant_time("abc", "abd"));
    CHECK_FALSE(equal_in_constant_time("abc", "abcabc"));
    CHECK_FALSE(equal_in_constant_time("abcabc", "abc"));
    CHECK_FALSE(equal_in_constant_time("", "abc"));
    CHECK_FALSE(equal_in_constant_time("abc", ""));
}

TEST_CASE("a file of keys needs a key") {
    CHECK_THROWS_AS(ApiKeys::parse("# only a comment\n\n", "keys"), keel::Error);
    CHECK(ApiKeys::parse("a\r\nb", "keys").all() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("aliases are read from YAML, and errors have their place") {
    const Aliases aliases = parse_aliases("aliases:\n"
                                          "  a: {policy: h2o, budget: {ratio: 0.25}}\n"
                                          "  b:\n"
                                          "    policy: sliding_window\n"
                                          "    trigger: [budget, every_n]\n"
                                          "    protect: {recent: 8, spans: [[0, 4]]}\n",
                                          "server.yaml");
    CHECK(aliases.at("a").policy ==
          keel::api::PolicyChoice{{"name", "h2o"}, {"budget.ratio", "0.25"}});
    CHECK(aliases.at("b").policy == keel::api::PolicyChoice{{"name", "sliding_window"},
                                                            {"trigger.on", "[budget, every_n]"},
                                                            {"protect.recent", "8"}});
    CHECK(aliases.at("b").protect == std::vector<std::pair<int64_t, int64_t>>{{0, 4}});
    CHECK(parse_aliases("", "server.yaml").empty());
    const auto message = [](const char *text) {
        try {
            parse_aliases(text, "server.yaml");
        } catch (const keel::Error &e) {
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK(message("aliases:\n  a: {polcy: h2o}\n").starts_with("server.yaml:2:6: alias 'a': "));
    CHECK(message("aliases:\n  a: h2o\n").starts_with("server.yaml:2:6: alias 'a': "));
    CHECK(message("alias: {}\n").starts_with("server.yaml:1"));
    CHECK(message("aliases: [a]\n").starts_with("server.yaml:1:10: aliases: "));
}

TEST_CASE("a histogram counts values up to each bound") {
    Histogram histogram;
    for (const double seconds : {0.0005, 0.02, 0.02, 1000.0}) histogram.add(seconds);
    std::string text;
    histogram.write(text, "h", "m=\"a\"");
    CHECK(text.find("h_bucket{m=\"a\",le=\"0.001\"} 1\n") != std::string::npos);
    CHECK(text.find("h_bucket{m=\"a\",le=\"0.025\"} 3\n") != std::string::npos);
    CHECK(text.find("h_bucket{m=\"a\",le=\"+Inf\"} 4\n") != std::string::npos);
    CHECK(text.find("h_count{m=\"a\"} 4\n") != std::string::npos);
}
