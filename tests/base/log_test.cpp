// Tests of Keel's log: which messages a sink gets, and from which level on.
#include "base/log.hpp"
#include "base/log_sinks.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <spdlog/sinks/ostream_sink.h>
#include <sstream>

using namespace keel;

TEST_CASE("a sink gets formatted lines from the logger's level on") {
    std::ostringstream out;
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(out);
    sink->set_pattern("%l %v");
    spdlog_logger().sinks().push_back(sink);
    CHECK(log().should_log(LogLevel::info));
    CHECK_FALSE(log().should_log(LogLevel::debug));
    log().debug("slot {}", 1);
    log().info("slot {}", 2);
    log().warn("{} of {}", "a", 3);
    log().write(LogLevel::error, "braces {} stay");
    log().write(LogLevel::trace, "not wanted");
    spdlog_logger().sinks().pop_back();
    CHECK(out.str() == "info slot 2\nwarning a of 3\nerror braces {} stay\n");
}
