// Compares all of Keel with Hugging Face transformers on the same weights: logits within 1e-4, and
// the same greedy tokens.

#include "golden.hpp"
#include "run/session.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace keel;
using test::GoldenCase;
using test::GoldenLogits;

namespace {

std::string path(const std::string &below) { return std::string(KEEL_SOURCE_DIR "/") + below; }

// Returns settings with float32 everywhere, on a backend.
std::vector<std::string> exact(const std::string &model, const std::string &backend) {
    std::vector<std::string> sets{
        "model.path=" + path(model), "model.weights=f32", "kv.dtype=f32",
        "policy.plugin=none",        "strict=true",       "backend.plugin=" + backend};
    if (backend == "cpu") sets.push_back("backend.params.compute=exact");
    return sets;
}

double worst_difference(std::span<const float> logits, const GoldenLogits &golden) {
    double worst = 0;
    for (size_t i = 0; i < golden.top_ids.size(); ++i) {
        worst = std::max(
            worst, std::abs(logits[static_cast<size_t>(golden.top_ids[i])] - golden.top_values[i]));
    }
    for (size_t i = 0; i < golden.every.size(); ++i) {
        worst = std::max(
            worst, std::abs(logits[i * static_cast<size_t>(golden.stride)] - golden.every[i]));
    }
    double sum = 0;
    for (const float v : logits) sum += std::exp(static_cast<double>(v) - golden.logsumexp);
    return std::max(worst, std::abs(std::log(sum)));
}

int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Reads the prompt, then feeds the golden tokens one by one. Checks the logits before each token.
void check_case(Session &session, const GoldenCase &golden, size_t tokens) {
    INFO(golden.name);
    session.prefill(golden.ids);
    auto position = static_cast<int64_t>(golden.ids.size()) - 1;
    size_t compared = 0;
    const auto check = [&] {
        for (const GoldenLogits &expected : golden.logits) {
            if (expected.position != position) continue;
            CHECK(worst_difference(session.logits(), expected) < 1e-4);
            ++compared;
        }
    };
    check();
    for (size_t i = 0; i < tokens; ++i) {
        INFO("token " << i);
        REQUIRE(argmax(session.logits()) == golden.greedy[i]);
        session.decode(golden.greedy[i]);
        ++position;
        check();
    }
    CHECK(compared > 0);
}

} // namespace

TEST_CASE("miniatures give the logits of transformers: plain, Llama 3 RoPE scaling, sharded bf16") {
    for (const std::string backend : {"reference", "cpu"}) {
        for (const GoldenCase &golden : test::read_golden("mini_logits.json")) {
            INFO(backend);
            PipelineOptions options;
            options.need_tokenizer = false;
            Pipeline pipeline(
                pipeline::config_from_overrides(exact("tests/golden/" + golden.name, backend)),
                options);
            Session session(pipeline);
            check_case(session, golden, golden.greedy.size());
        }
    }
}

TEST_CASE("miniatures give the logits of transformers at every position of a prompt taken token by "
          "token") {
    for (const GoldenCase &golden : test::read_golden("mini_logits.json")) {
        INFO(golden.name);
        PipelineOptions options;
        options.need_tokenizer = false;
        Pipeline pipeline(
            pipeline::config_from_overrides(exact("tests/golden/" + golden.name, "cpu")), options);
        Session session(pipeline);
        for (size_t i = 0; i < golden.ids.size(); ++i) {
            session.decode(golden.ids[i]);
            REQUIRE(session.greedy() == golden.argmax[i]);
            for (const GoldenLogits &expected : golden.logits) {
                if (expected.position == static_cast<int64_t>(i))
                    CHECK(worst_difference(session.logits(), expected) < 1e-4);
            }
        }
    }
}

TEST_CASE("models/tiny generates the text of transformers: ten prompts, 200 greedy tokens each") {
    Pipeline pipeline(pipeline::config_from_overrides(exact("models/tiny", "cpu")));
    Session session(pipeline);
    for (const GoldenCase &golden : test::read_golden("tiny_greedy.json")) {
        INFO(golden.name);
        CHECK(pipeline.tokenizer()->encode(golden.text) == golden.ids);
        session.reset();
        check_case(session, golden, golden.greedy.size());
    }
}

TEST_CASE("the reference backend generates the text of transformers") {
    Pipeline pipeline(pipeline::config_from_overrides(exact("models/tiny", "reference")));
    Session session(pipeline);
    check_case(session, test::read_golden("tiny_greedy.json").at(1), 8);
}
