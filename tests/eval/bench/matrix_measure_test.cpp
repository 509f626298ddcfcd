// Tests of a folder of results: what it contains, and which files count as results.
#include "eval/bench/matrix/measure.hpp"
#include "platform/paths.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <optional>

using namespace keel;

namespace {

// A matrix of one run, and a program that replaces keel and prints `output`.
struct FakeMeasurement {
    explicit FakeMeasurement(const std::string &output)
        : matrix(load_matrix(folder.write("matrix.yaml", "models: m\nlengths: 8\n"), "cpu")),
          run(matrix_runs(matrix).front()) {
        folder.write("output", output);
        MatrixProgram program;
        program.path = folder.write("keel", "#!/bin/sh\ncat " + (folder / "output").string());
        program.commit = "a commit";
        program.interrupted = [] { return false; };
        std::filesystem::permissions(program.path, std::filesystem::perms::owner_all);
        std::filesystem::create_directory(folder / "results");
        measurement.emplace(matrix, folder / "results", program);
    }
    std::filesystem::path file() const {
        return std::filesystem::directory_iterator(folder / "results")->path();
    }

    test::TempFolder folder;
    BenchMatrix matrix;
    MatrixRun run;
    std::optional<MatrixMeasurement> measurement;
};

} // namespace

TEST_CASE("a measured run is complete, and its result keeps the order of its members") {
    const FakeMeasurement fake(R"({"z": 1, "a": [2.5, null]})");
    CHECK_FALSE(fake.measurement->is_done(fake.run));
    REQUIRE(fake.measurement->measure(fake.run) == 0);
    CHECK(fake.measurement->is_done(fake.run));
    const std::string text = read_text_file(fake.file(), 1 << 20);
    CHECK(text.find("\"z\": 1") < text.find("\"a\": ["));
}

TEST_CASE("output of keel bench that is not a result is refused, and no file is written") {
    for (const std::string &output :
         {std::string(), std::string("{\"a\": "), std::string("[1]"), std::string(100000, '['),
          "{\"a\": \"\xff\"}" + std::string(), std::string(R"({"a": 1, "a": 2})")}) {
        const FakeMeasurement fake(output);
        CHECK(fake.measurement->measure(fake.run) == -1);
        CHECK(std::filesystem::is_empty(fake.folder / "results"));
    }
}

TEST_CASE("a damaged result in the folder is measured again") {
    const FakeMeasurement fake("{}");
    REQUIRE(fake.measurement->measure(fake.run) == 0);
    const std::string name = "results/" + fake.file().filename().string();
    const std::string whole = read_text_file(fake.file(), 1 << 20);
    for (const std::string &text :
         {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
          std::string(100000, '['), std::string(R"({"key": 3, "result": {}})"),
          std::string(R"({"key": "another", "result": {}})"), std::string(9 << 20, ' ')}) {
        fake.folder.write(name, text);
        CHECK_FALSE(fake.measurement->is_done(fake.run));
    }
    fake.folder.write(name, whole);
    CHECK(fake.measurement->is_done(fake.run));
}
