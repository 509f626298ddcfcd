#include "base/json_writer.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace keel;

TEST_CASE("a JSON writer separates and quotes values and keeps their order") {
    JsonWriter json;
    json.begin_object().member("z", 1).member("a", std::string("\"\n\xff"));
    json.key("list").begin_array().value(1.0).value(0.1).value(-3).value(true).null();
    json.value(std::optional<double>()).value(std::optional<double>(2.5)).value(NAN).end_array();
    json.key("empty").begin_object().end_object().key("more").begin_array();
    json.begin_array().end_array().raw("{\"x\":1}").end_array().member("last", UINT64_MAX);
    json.end_object();
    CHECK(json.take() ==
          "{\"z\":1,\"a\":\"\\\"\\n\xEF\xBF\xBD\",\"list\":[1.0,0.1,-3,true,null,null,2.5,"
          "null],\"empty\":{},\"more\":[[],{\"x\":1}],\"last\":18446744073709551615}");
}
