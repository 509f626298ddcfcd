#include "plugin/param_table.hpp"

#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <utility>

using keel::ErrorKind;
using keel::GivenParam;
using keel::ParamTable;
using keel::SourceLocation;
using keel::test::error_text;
using Form = GivenParam::Form;

namespace {

const char *const poolings[] = {"avg", "max", nullptr};
const keel_param_spec window = KEEL_INT_PARAM("window", "32", 1, 4096, "queries that score");
const keel_param_spec decay = KEEL_FLOAT_PARAM("decay", "0.5", 0, 1, "weight of the past");
const keel_param_spec sinks = KEEL_BOOL_PARAM("sinks", "true", "keep the first tokens");
const keel_param_spec label = KEEL_STRING_PARAM("label", "", "a name");
const keel_param_spec pooling =
    KEEL_CHOICE_PARAM("pooling", "avg", poolings, "how neighbours count");
const keel_param_spec *const rows[] = {&window, &decay, &sinks, &label, &pooling};

ParamTable table() { return {"policy snapkv", rows, 5}; }

GivenParam given(std::string key, std::string text, Form form = Form::plain) {
    return {std::move(key), std::move(text), form, {"run.yaml", 12, 5}};
}

std::string bind_error(const ParamTable &params, std::vector<GivenParam> list) {
    return error_text([&] { params.bind(list, {"run.yaml", 10, 3}); });
}

ParamTable one_row(keel_param_spec spec) {
    const keel_param_spec *const specs[] = {&spec};
    return {"policy odd", specs, 1};
}

std::string table_error(keel_param_spec spec) {
    return error_text([&] { one_row(spec); }, ErrorKind::plugin);
}

} // namespace

TEST_CASE("an empty config gives every parameter its default, in the order of the table") {
    const auto values = table().bind({}, {});
    REQUIRE(values.size() == 5);
    CHECK(values.data()[0]->i == 32);
    CHECK(values.data()[0]->f == 32.0);
    CHECK(values.data()[1]->f == 0.5);
    CHECK(values.data()[2]->i == 1);
    CHECK(std::string(values.data()[3]->s).empty());
    CHECK(std::string(values.data()[4]->s) == "avg");
    for (const keel_param &value : values.rows()) {
        CHECK(value.is_default == 1);
        CHECK(value.h.struct_size == sizeof(keel_param));
    }
    CHECK(ParamTable("backend bare", nullptr, 0).bind({}, {}).data() == nullptr);
}

TEST_CASE("given values replace defaults and stay valid when the values are moved") {
    const std::vector<GivenParam> list = {given("pooling", "max", Form::quoted),
                                          given("window", "0x40"), given("decay", "1"),
                                          given("sinks", "False"), given("label", "a: b")};
    auto bound = table().bind(list, {});
    const keel::ParamValues values = std::move(bound);
    CHECK(values.find("window")->i == 64);
    CHECK(values.find("window")->is_default == 0);
    CHECK(values.find("decay")->f == 1.0);
    CHECK(values.find("sinks")->i == 0);
    CHECK(std::string(values.find("label")->s) == "a: b");
    CHECK(std::string(values.find("pooling")->s) == "max");
    CHECK(values.find("nothing") == nullptr);
    CHECK(std::string(values.data()[4]->key) == "pooling");
}

TEST_CASE("an unknown key names file, line, column and the nearest key") {
    CHECK(bind_error(table(), {given("widnow", "8")}) ==
          "run.yaml:12:5: unknown key 'widnow' for policy snapkv; did you mean 'window'?");
    CHECK(bind_error(table(), {given("zzz", "8")}) ==
          "run.yaml:12:5: unknown key 'zzz' for policy snapkv; it takes: window, decay, sinks, "
          "label, pooling");
    CHECK(bind_error(ParamTable("policy none", nullptr, 0), {given("window", "8")}) ==
          "run.yaml:12:5: unknown key 'window' for policy none; it takes no parameters");
    GivenParam set = given("widnow", "8");
    set.at = {"--set policy.params.widnow", 0, 0};
    CHECK(bind_error(table(), {set}).rfind("--set policy.params.widnow: unknown key", 0) == 0);
}

TEST_CASE("a wrong type or value is refused with the expected and the found one") {
    const auto error = [](const char *key, const char *text, Form form = Form::plain) {
        return bind_error(table(), {given(key, text, form)});
    };
    CHECK(error("window", "0") ==
          "run.yaml:12:5: 'window' of policy snapkv expects an integer from 1 to 4096, found '0'");
    CHECK(error("window", "64", Form::quoted) ==
          "run.yaml:12:5: 'window' of policy snapkv expects an "
          "integer from 1 to 4096, found the string \"64\"; write it "
          "without quotes");
    CHECK(error("pooling", "avgg") ==
          "run.yaml:12:5: 'pooling' of policy snapkv expects one of: avg, max, "
          "found 'avgg'; did you mean 'avg'?");
    CHECK(error("sinks", "yes").ends_with("expects true or false, found 'yes'"));
    CHECK(error("label", "", Form::map).ends_with("expects text, found a map"));
    CHECK(error("decay", "", Form::null).ends_with("expects a number from 0 to 1, found nothing"));
    for (const char *text :
         {"", "1.5", "abc", "9999999999999999999999", "--3", "+-3", "3 ", "0x", "-0x-3", "4097"})
        CHECK_FALSE(error("window", text).empty());
    for (const char *text : {"", "nan", "inf", "1e999", "0,5", "-0.1", "1.01"})
        CHECK_FALSE(error("decay", text).empty());
}

TEST_CASE("a key given twice is refused with both places") {
    GivenParam second = given("window", "9");
    second.at = {"--set policy.params.window", 0, 0};
    CHECK(bind_error(table(), {given("window", "8"), second}) ==
          "--set policy.params.window: 'window' of policy snapkv is given twice, first at "
          "run.yaml:12:5; "
          "remove one");
}

TEST_CASE("a missing required key is reported at the plugin's section") {
    keel_param_spec file = KEEL_STRING_PARAM("file", nullptr, "budgets per head, JSON");
    file.flags = KEEL_PARAM_REQUIRED;
    const ParamTable params = one_row(file);
    CHECK(bind_error(params, {}) ==
          "run.yaml:10:3: policy odd needs the parameter 'file' (text): budgets per head, JSON");
    const std::vector<GivenParam> list = {given("file", "heads.json")};
    CHECK(std::string(params.bind(list, {}).find("file")->s) == "heads.json");
}

TEST_CASE("a path is relative to the folder of the file that has it") {
    const ParamTable params = one_row(KEEL_PATH_PARAM("file", "", "budgets"));
    CHECK(params.specs()[0].expects() == "a path");
    const auto bound = [&](std::string text, const char *folder) {
        GivenParam row = given("file", std::move(text));
        row.folder = folder;
        const std::vector<GivenParam> list = {row};
        return std::string(params.bind(list, {}).find("file")->s);
    };
    CHECK(bound("heads.json", "/data/runs") == "/data/runs/heads.json");
    CHECK(bound("../heads.json", "/data/runs") == "/data/heads.json");
    CHECK(bound("/else/heads.json", "/data/runs") == "/else/heads.json");
    CHECK(bound("", "/data/runs").empty());
    CHECK(bound("heads.json", "") == (std::filesystem::current_path() / "heads.json").string());
    CHECK(std::string(params.bind({}, {}).find("file")->s).empty());
    CHECK(table_error(KEEL_PATH_PARAM("file", "heads.json", "")).find("not an absolute path") !=
          std::string::npos);
}

TEST_CASE("the words of a path parameter are not paths, and all other values are") {
    static const char *const words[] = {"auto", "off", nullptr};
    keel_param_spec row = KEEL_PATH_PARAM("cache", "auto", "where compiled kernels go");
    row.choices = words;
    const ParamTable params = one_row(row);
    CHECK(params.specs()[0].expects() == "a path, or one of: auto, off");
    const auto bound = [&](const char *text, GivenParam::Form form) {
        GivenParam param = given("cache", text);
        param.form = form;
        param.folder = "/data/runs";
        const std::vector<GivenParam> list = {param};
        return std::string(params.bind(list, {}).find("cache")->s);
    };
    for (const GivenParam::Form form : {GivenParam::Form::plain, GivenParam::Form::quoted}) {
        CHECK(bound("auto", form) == "auto");
        CHECK(bound("off", form) == "off");
        CHECK(bound("./off", form) == "/data/runs/off");
        CHECK(bound("kernels", form) == "/data/runs/kernels");
        CHECK(bound("/else", form) == "/else");
    }
    CHECK(std::string(params.bind({}, {}).find("cache")->s) == "auto");
    row.default_utf8 = "on";
    CHECK(table_error(row).find("not an absolute path") != std::string::npos);
}

TEST_CASE("the messages for ranges without an end are right") {
    const double inf = std::numeric_limits<double>::infinity();
    CHECK(one_row(KEEL_INT_PARAM("n", "1", 1, inf, "")).specs()[0].expects() ==
          "an integer of at least 1");
    CHECK(one_row(KEEL_FLOAT_PARAM("n", "1", -inf, 2.5, "")).specs()[0].expects() ==
          "a number of at most 2.5");
    CHECK(one_row(KEEL_INT_PARAM("n", "1", -inf, inf, "")).specs()[0].expects() == "an integer");
}

TEST_CASE("a table that contradicts itself is refused at load") {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    const char *const none[] = {nullptr};
    CHECK(table_error(KEEL_INT_PARAM("Window", "1", 0, 1, "")).find("not snake_case") !=
          std::string::npos);
    CHECK(table_error(KEEL_INT_PARAM(nullptr, "1", 0, 1, "")).find("not snake_case") !=
          std::string::npos);
    CHECK(table_error(KEEL_INT_PARAM("n", "2", 0, 1, "")).find("its default is '2'") !=
          std::string::npos);
    CHECK(table_error(KEEL_INT_PARAM("n", "x", 0, 1, "")).find("its default is 'x'") !=
          std::string::npos);
    CHECK(table_error(KEEL_INT_PARAM("n", "1", 2, 1, "")).find("empty range") != std::string::npos);
    CHECK(table_error(KEEL_FLOAT_PARAM("n", "1", nan, 1, "")).find("empty range") !=
          std::string::npos);
    CHECK(table_error(KEEL_INT_PARAM("n", nullptr, 0, 1, "")).find("no default") !=
          std::string::npos);
    CHECK(table_error(KEEL_CHOICE_PARAM("n", "a", none, "")).find("no choices") !=
          std::string::npos);
    CHECK(table_error(KEEL_CHOICE_PARAM("n", "a", nullptr, "")).find("no choices") !=
          std::string::npos);
    CHECK(table_error(KEEL_CHOICE_PARAM("n", "min", poolings, "")).find("its default is 'min'") !=
          std::string::npos);
    keel_param_spec odd = window;
    odd.type = 9;
    CHECK(table_error(odd).find("unknown type 9") != std::string::npos);
    odd = window;
    odd.h.struct_size = 24;
    CHECK(table_error(odd).find("too small") != std::string::npos);
    const keel_param_spec *const twice[] = {&window, &window};
    CHECK(error_text([&] { ParamTable("policy odd", twice, 2); }, ErrorKind::plugin)
              .find("'window' twice") != std::string::npos);
    const keel_param_spec *const hole[] = {&window, nullptr};
    CHECK(error_text([&] { ParamTable("policy odd", hole, 2); }, ErrorKind::plugin).find("row 1") !=
          std::string::npos);
    CHECK(error_text([&] { ParamTable("policy odd", nullptr, 2); }, ErrorKind::plugin)
              .find("no table") != std::string::npos);
    CHECK(error_text([&] { ParamTable("policy odd", rows, 70'000); }, ErrorKind::plugin)
              .find("1000") != std::string::npos);
}
