#include "plugin/host.hpp"
#include "plugin/registry.hpp"

#include "base/log_sinks.hpp"
#include "platform/fpu.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>

#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <vector>

using keel::ErrorKind;
using keel::HostServices;
using keel::PluginRegistry;
using keel::SourceLocation;
using keel::test::error_text;
namespace fs = std::filesystem;

namespace {

const fs::path folder = KEEL_TEST_PLUGINS;
const SourceLocation line{"run.yaml", 17, 11};

// Returns the message that a user sees if line 17 of the config names the plugin. Also checks that
// the refused library was closed again.
std::string refusal(const std::string &name, keel_plugin_kind kind = KEEL_PLUGIN_POLICY) {
    PluginRegistry registry({folder});
    const std::string text = error_text([&] { registry.get(name, kind, line); }, ErrorKind::plugin);
    CHECK(text.rfind("run.yaml:17:11: ", 0) == 0);
    return text;
}

bool is_mapped(const std::string &name) {
    void *handle = ::dlopen((folder / (name + ".so")).c_str(), RTLD_NOLOAD | RTLD_NOW);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
}

// Checks that the message names the plugin's file, the reason and what to do, and that the library
// is not loaded any more.
void check_refusal(const std::string &name, const std::string &reason, const std::string &cure) {
    const std::string text = refusal(name);
    INFO(text);
    CHECK(text.find((folder / (name + ".so")).string()) != std::string::npos);
    CHECK(text.find(reason) != std::string::npos);
    CHECK(text.find(cure) != std::string::npos);
    CHECK_FALSE(is_mapped(name));
}

} // namespace

TEST_CASE("a good plugin is found by name, loaded once, and described") {
    PluginRegistry registry({"/nonexistent", folder});
    const keel::PluginLibrary &plugin = registry.get("good_policy", KEEL_PLUGIN_POLICY, line);
    CHECK(plugin.name() == "policy good_policy");
    CHECK(plugin.version() == "1.0.0");
    CHECK(plugin.doc() == "Keeps the newest slots.");
    CHECK(plugin.path() == folder / "good_policy.so");
    CHECK(plugin.params().specs().size() == 2);
    CHECK(plugin.policy().decide != nullptr);
    CHECK(plugin.policy().fork == nullptr);
    CHECK(plugin.extension("keel.test/1") != nullptr);
    CHECK(plugin.extension("keel.test/12") == nullptr);
    CHECK(&registry.get((folder / ".." / "test_plugins" / "good_policy.so").string(), line) ==
          &plugin);
    CHECK(error_text([&] { static_cast<void>(plugin.backend()); }, ErrorKind::internal)
              .find("policy") != std::string::npos);
    CHECK(is_mapped("good_policy"));
}

TEST_CASE("an unknown plugin name is refused with the searched folders and a similar name") {
    PluginRegistry registry({"/nonexistent", folder});
    const std::string text =
        error_text([&] { registry.get("good_polcy", line); }, ErrorKind::plugin);
    CHECK(text == "run.yaml:17:11: no plugin 'good_polcy': no good_polcy.so in /nonexistent, " +
                      folder.string() + "; did you mean 'good_policy'?");
    const std::string far = error_text([&] { registry.get("xyzzy", line); }, ErrorKind::plugin);
    CHECK(far.find("KEEL_PLUGIN_PATH") != std::string::npos);
    CHECK(error_text([&] { registry.get("", line); }, ErrorKind::plugin).find("no plugin ''") !=
          std::string::npos);
    const std::string set = error_text(
        [&] {
            registry.get("xyzzy", {"--set policy.plugin", 0, 0});
        },
        ErrorKind::plugin);
    CHECK(set.rfind("--set policy.plugin: ", 0) == 0);
}

TEST_CASE("a path that does not exist, that is a folder, or that has no base folder is refused") {
    const std::string missing = refusal("/nonexistent/cpu.so");
    CHECK(missing ==
          "run.yaml:17:11: plugin /nonexistent/cpu.so: no such file; correct the path, or build "
          "or install the plugin");
    CHECK(refusal(folder.string()).find("expected a regular file, found a folder") !=
          std::string::npos);
    CHECK(refusal("./good_policy.so").find("write an absolute path") != std::string::npos);
    CHECK(refusal("good_policy.so").find("write an absolute path") != std::string::npos);
}

TEST_CASE("a file that is not a library is refused with the loader's message") {
    const keel::test::TempFolder temp;
    for (const char *content :
         {"", "#!/bin/sh\n",
          "\x7f"
          "ELF and then something else, long enough for a header or so ....."}) {
        const fs::path path = temp.write("fake.so", content);
        const std::string text = refusal(path.string());
        INFO(text);
        CHECK(text.find("plugin " + path.string() + ": cannot be loaded: ") != std::string::npos);
        CHECK(text.find("; build the plugin ") != std::string::npos);
    }
}

TEST_CASE("a library that needs an unknown symbol is refused at load, not at the first call") {
    check_refusal("missing_symbol", "undefined symbol: a_function_that_nobody_defines",
                  "link the missing library into the plugin");
}

TEST_CASE("a library without the entry symbol is refused") {
    check_refusal("no_entry", "exports no keel_plugin_query_v0",
                  "build the plugin with keel_add_plugin()");
}

TEST_CASE("an entry symbol of another major version is reported") {
    check_refusal("major_one", "was built for ABI major 1, this Keel has ABI 0.1",
                  "or a newer Keel");
}

TEST_CASE("a plugin that returns NULL is reported as refusing the host") {
    check_refusal("refuses", "refuses to serve this Keel (ABI 0.1)", "update Keel");
    check_refusal("throwing_query", "refuses to serve this Keel (ABI 0.1)", "update Keel");
}

TEST_CASE("a descriptor or table of another major version is refused") {
    check_refusal("wrong_major", "the descriptor has ABI 7.3, this Keel has ABI 0.1",
                  "use a build of the plugin");
    check_refusal("table_major", "the policy table has ABI 2.0, this Keel has ABI 0.1",
                  "build the plugin with the headers");
}

TEST_CASE("a descriptor or table that does not cover the required prefix is refused") {
    check_refusal("small_descriptor", "the descriptor is too small", "report it to its author");
    check_refusal("small_table", "the policy table is too small: 24 bytes, 32 are required",
                  "report it to its author");
    check_refusal("half_slot", "not a multiple of a pointer's", "report it to its author");
}

TEST_CASE("missing tables and missing required functions are reported") {
    check_refusal("null_table", "has no policy table", "report it to its author");
    check_refusal("null_slots", "required slots of the policy table are NULL: create, decide",
                  "report it to its author");
}

TEST_CASE("a plugin of the wrong kind is refused, but can still be used as its own kind") {
    const std::string text = refusal("good_policy", KEEL_PLUGIN_BACKEND);
    CHECK(text == "run.yaml:17:11: good_policy is a policy, but this key needs a backend; name a "
                  "backend (plugin file: " +
                      (folder / "good_policy.so").string() + ")");
    check_refusal("unknown_kind", "is of kind 77", "update Keel");
}

TEST_CASE("the error for a plugin that needs a newer host names the needed version") {
    check_refusal("future_host", "needs ABI 0.42 or newer, this Keel has ABI 0.1", "update Keel");
}

TEST_CASE("a plugin that was found by name must have this name as its id") {
    const std::string text = refusal("other_id");
    CHECK(
        text.find("the id in the plugin is 'somebody_else'; rename the file to somebody_else.so") !=
        std::string::npos);
    PluginRegistry registry({folder});
    CHECK(registry.get((folder / "other_id.so").string(), line).id() == "somebody_else");
    const std::string bad = refusal("bad_id");
    CHECK(bad.find("is not of the form") != std::string::npos);
    CHECK(bad.find('\x1b') == std::string::npos);
}

TEST_CASE("a parameter table that contradicts itself is refused at load") {
    check_refusal("bad_params",
                  "('window') expects an integer from 1 to 4096, but its default is '0'",
                  "report it to its author");
}

TEST_CASE(
    "a plugin with a sanitizer that the host lacks is refused before it can end the process") {
    check_refusal("says_sanitized", "was built with", "build both with the same KEEL_SANITIZE");
#if defined(KEEL_TEST_SANITIZED_PLUGIN)
    check_refusal("sanitized", "was built with AddressSanitizer, this Keel with no sanitizer",
                  "build both with the same KEEL_SANITIZE");
#endif
}

#if defined(__x86_64__)
TEST_CASE("a plugin linked with -ffast-math loads with a warning, and the floating-point mode is "
          "restored") {
    std::ostringstream text;
    keel::spdlog_logger().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    const uint32_t mode = keel::fpu_mode();
    PluginRegistry registry({folder});
    CHECK(registry.get("fast_math", KEEL_PLUGIN_POLICY, line).id() == "fast_math");
    keel::spdlog_logger().sinks().clear();
    CHECK(keel::fpu_mode() == mode);
    INFO(text.str());
    CHECK(text.str().find("run.yaml:17:11: plugin " + (folder / "fast_math.so").string()) !=
          std::string::npos);
    CHECK(text.str().find("-ffast-math: pass this flag only to the compiler") != std::string::npos);
}
#endif

TEST_CASE("an older plugin works, and members that it lacks are NULL") {
    PluginRegistry registry({folder});
    const keel::PluginLibrary &plugin = registry.get("old_plugin", KEEL_PLUGIN_POLICY, line);
    CHECK(plugin.policy().decide != nullptr);
    CHECK(plugin.policy().reset == nullptr);
    CHECK(plugin.policy().save == nullptr);
    CHECK(plugin.extension("keel.test/1") == nullptr);
}

TEST_CASE("a newer plugin works, and members that the host does not know are ignored") {
    PluginRegistry registry({folder});
    const keel::PluginLibrary &plugin = registry.get("newer_plugin", KEEL_PLUGIN_POLICY, line);
    CHECK(keel::abi_text(plugin.abi_version()) == "0.6");
    CHECK(plugin.policy().h.struct_size == sizeof(keel_policy));
    CHECK(plugin.policy().reset != nullptr);
    CHECK(plugin.policy().load == nullptr);
    CHECK(plugin.params().bind({}, {}).find("window")->i == 4);
}

TEST_CASE("exceptions in a plugin's functions become statuses with their text") {
    PluginRegistry registry({folder});
    HostServices services(2);
    const keel::PluginLibrary &plugin = registry.get("throwing_slots", KEEL_PLUGIN_POLICY, line);
    const keel_policy &policy = plugin.policy();
    keel_geometry geometry = {KEEL_HEADER(keel_geometry), 1, 1, 1, 8, 64, 0};
    keel_policy_needs needs = {};
    needs.h = KEEL_HEADER(keel_policy_needs);
    keel_policy_state *state = nullptr;
    const auto create = [&](const char *mode) {
        const std::vector<keel::GivenParam> given = {
            {"mode", mode, keel::GivenParam::Form::plain, line}};
        const auto params = plugin.params().bind(given, line);
        HostServices::drop_error();
        return policy.create(services.table(), &geometry, params.data(), params.size(), 5, &needs,
                             &state);
    };
    const auto message = [] {
        const auto error = HostServices::take_error();
        return error ? error->message : std::string("(none)");
    };
    CHECK(create("unknown_key") == KEEL_E_INTERNAL);
    CHECK(message() == "parameter 'not_in_the_table' is not in the plugin's table");
    CHECK(create("bad_alloc") == KEEL_E_OUT_OF_MEMORY);
    CHECK(message() == "out of memory");
    CHECK(create("int") == KEEL_E_INTERNAL);
    geometry.layers = 0;
    CHECK(create("fine") == KEEL_E_INVALID_ARG);
    CHECK(message() == "0 layers, seed 5");
    CHECK(state == nullptr);
    geometry.layers = 1;
    REQUIRE(create("fine") == KEEL_OK);
    CHECK(needs.output == KEEL_OUTPUT_SCORES);

    std::vector<float> scores(100, -1.0f);
    keel_policy_input input = {};
    input.h = KEEL_HEADER(keel_policy_input);
    input.stride = 100;
    input.next_position = 100;
    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision), scores.data(), nullptr,
                                     nullptr};
    CHECK(policy.decide(state, &input, &decision) == KEEL_OK);
    for (int i = 0; i < 100; ++i) CHECK(scores[static_cast<size_t>(i)] == static_cast<float>(i));
    // slots in the caller's share and in another worker's share
    for (const int64_t slot : {0, 99}) {
        input.next_position = slot;
        CHECK(policy.decide(state, &input, &decision) == KEEL_E_INTERNAL);
        CHECK(message() == "slot is unwell");
    }
    CHECK(policy.reset(state) == KEEL_E_INTERNAL);
    CHECK(message() == "no way back");
    policy.destroy(state);
}
