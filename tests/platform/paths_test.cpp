#include "platform/paths.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;
using keel::test::TempFolder;
namespace fs = std::filesystem;

TEST_CASE("the executable's path is this test program") {
    CHECK(executable_path().is_absolute());
    CHECK(executable_path().filename() == "platform_tests");
    CHECK(fs::exists(executable_path()));
}

TEST_CASE("absolute paths are normal and need no file") {
    CHECK(absolute_path("/a/./b/../c") == "/a/c");
    CHECK(absolute_path("/a/b/") == "/a/b");
    CHECK(absolute_path("/") == "/");
    CHECK(absolute_path("x") == fs::current_path() / "x");
}

TEST_CASE("paths in a file are relative to its folder") {
    CHECK(resolve_path("/configs", "models/tiny") == "/configs/models/tiny");
    CHECK(resolve_path("/configs", "../models/tiny") == "/models/tiny");
    CHECK(resolve_path("/configs", "/models/tiny") == "/models/tiny");
}

TEST_CASE("canonical paths follow links and must exist") {
    const TempFolder folder;
    folder.write("real/file", "x");
    fs::create_directory_symlink(folder / "real", folder / "link");
    CHECK(canonical_path(folder / "link/file") == fs::canonical(folder.path()) / "real/file");
    CHECK_THAT(error_text([&] { canonical_path(folder / "none"); }),
               Contains("none") && Contains("No such file"));
}

TEST_CASE("text files are read whole, up to their limit") {
    const TempFolder folder;
    const std::string content("line\n\0more", 10);
    const auto path = folder.write("text", content);
    CHECK(read_text_file(path, 10) == content);
    CHECK(read_text_file(folder.write("empty", ""), 0).empty());
    CHECK_THAT(error_text([&] { read_text_file(path, 9); }),
               Contains(path.string()) && Contains("expected at most 9 B, found 10 B"));
}
