#include "plugin/registry.hpp"

#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

using keel::ErrorKind;
using keel::test::error_text;
using keel::test::TempFolder;
namespace fs = std::filesystem;

namespace {

// Sets an environment variable until the end of a scope.
class Environment {
  public:
    explicit Environment(const char *value) { ::setenv("KEEL_PLUGIN_PATH", value, 1); }
    ~Environment() { ::unsetenv("KEEL_PLUGIN_PATH"); }
};

} // namespace

TEST_CASE(
    "KEEL_PLUGIN_PATH comes first, then the folder of the executable, then the installation") {
    const Environment environment("/first:/second//:/first:");
    const std::vector<fs::path> folders = keel::default_plugin_folders();
    REQUIRE(folders.size() >= 4);
    CHECK(folders[0] == "/first");
    CHECK(folders[1] == "/second");
    CHECK(folders[2] == fs::path(KEEL_BINARY_DIR) / "lib/keel/plugins");
    for (const fs::path &folder : folders) CHECK(folder.is_absolute());
    CHECK(std::find(folders.begin(), folders.end(), fs::current_path()) == folders.end());
}

TEST_CASE("a relative entry in KEEL_PLUGIN_PATH is refused") {
    for (const char *value : {"plugins", "/good:.", "/good:../plugins:/other"}) {
        const Environment environment(value);
        const std::string text =
            error_text([] { keel::default_plugin_folders(); }, ErrorKind::usage);
        CHECK(text.rfind("KEEL_PLUGIN_PATH: ", 0) == 0);
        CHECK(text.find("absolute") != std::string::npos);
    }
}

TEST_CASE("the first folder that has the file is used, and finding loads nothing") {
    const TempFolder temp;
    temp.write("a/one.so", "no library");
    temp.write("b/one.so", "no library");
    temp.write("b/two.so", "no library");
    const std::vector<fs::path> folders = {temp / "none", temp / "a", temp / "b"};
    CHECK(keel::find_plugin("one", {}, folders) == temp / "a/one.so");
    CHECK(keel::find_plugin("two", {}, folders) == temp / "b/two.so");
    CHECK(keel::find_plugin("/x/../y/three.so", {}, folders) == "/y/three.so");
}

TEST_CASE("the working directory is never searched") {
    const TempFolder temp;
    temp.write("here.so", "no library");
    const fs::path before = fs::current_path();
    fs::current_path(temp.path());
    const std::string by_name =
        error_text([&] { keel::find_plugin("here", {}, {"/nonexistent"}); }, ErrorKind::plugin);
    const std::string by_file =
        error_text([&] { keel::find_plugin("here.so", {}, {"/nonexistent"}); }, ErrorKind::plugin);
    fs::current_path(before);
    CHECK(by_name.find("no plugin 'here'") != std::string::npos);
    CHECK(by_file.find("absolute") != std::string::npos);
}

TEST_CASE("listing names files in all folders, loads none, and marks hidden ones") {
    const TempFolder temp;
    temp.write("a/beta.so", "no library");
    temp.write("a/notes.txt", "no plugin");
    temp.write("b/beta.so", "no library");
    temp.write("b/alpha.so", "no library");
    fs::create_directories(temp / "b/folder.so");
    const keel::PluginRegistry registry({temp / "a", temp / "none", temp / "b"});
    const auto files = registry.list();
    REQUIRE(files.size() == 3);
    CHECK(files[0].name == "alpha");
    CHECK_FALSE(files[0].shadowed);
    CHECK(files[1].path == temp / "a/beta.so");
    CHECK_FALSE(files[1].shadowed);
    CHECK(files[2].path == temp / "b/beta.so");
    CHECK(files[2].shadowed);
}
