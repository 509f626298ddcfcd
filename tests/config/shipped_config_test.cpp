#include "config/config.hpp"
#include "config/config_writer.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <set>

using namespace keel;
using namespace keel::pipeline;
namespace fs = std::filesystem;

namespace {
const fs::path source = KEEL_SOURCE_DIR;
}

TEST_CASE("every shipped config can be read, is strict, and names an existing model") {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(source / "configs")) {
        if (entry.path().extension() != ".yaml") continue;
        INFO(entry.path());
        names.insert(entry.path().filename().string());
        const PipelineConfig config = load_config(entry.path());
        CHECK(*config.strict);
        const std::string plugin =
            *config.backend.plugin; // a config for a GPU has the name of its plugin
        CHECK((config.hybrid.is_given() || plugin == "cpu" || plugin == entry.path().stem()));
        CHECK(fs::exists(*config.model.path / "config.json"));
        CHECK_FALSE(config.generation.prompt->empty());
        CHECK(parse_config(to_yaml(config), "again.yaml", "/") == config);
        // Each config begins with a comment that tells newcomers what it is for.
        std::ifstream in(entry.path());
        std::string first;
        std::getline(in, first);
        CHECK(first.starts_with("# "));
    }
    for (const char *expected :
         {"quickstart.yaml", "full_cache.yaml", "sliding_window_rerotated.yaml", "q8_cache.yaml",
          "greedy_f32.yaml", "hybrid.yaml"})
        CHECK(names.count(expected) == 1);
}

TEST_CASE("the quickstart evicts with a sliding window and keeps attention sinks") {
    const PipelineConfig config = load_config(source / "configs/quickstart.yaml");
    CHECK(*config.model.path == fs::path(KEEL_SOURCE_DIR) / "models/tiny");
    CHECK(*config.policy.plugin == "sliding_window");
    CHECK(config.policy.params.at(0).key == "window");
    CHECK(*config.policy.protect.prefix == 4);
    CHECK(*config.policy.positions == PositionMode::absolute);
    CHECK(config.kv.key_type() == KEEL_DTYPE_F16);
    CHECK(*config.generation.prompt == "Once upon a time");
    CHECK_FALSE(config.sampling.seed.is_default());
}

TEST_CASE("the other configs do what their names say") {
    const auto load = [](const char *name) { return load_config(source / "configs" / name); };
    CHECK(*load("full_cache.yaml").policy.plugin == "none");
    CHECK(*load("sliding_window_rerotated.yaml").policy.positions == PositionMode::rerotated);
    CHECK(*load("q8_cache.yaml").model.weights == KEEL_DTYPE_Q8_0);
    CHECK(load("q8_cache.yaml").kv.value_type() == KEEL_DTYPE_Q8_0);
    const PipelineConfig greedy = load("greedy_f32.yaml");
    CHECK(*greedy.sampling.temperature == 0);
    CHECK(*greedy.model.weights == KEEL_DTYPE_F32);
    CHECK(greedy.kv.key_type() == KEEL_DTYPE_F32);
}
