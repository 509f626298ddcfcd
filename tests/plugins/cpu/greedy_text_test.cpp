// models/tiny writes the same greedy text whatever the instruction set, the one that transformers wrote: on each machine, for each set
// that it has, products in f32 and products of rounded activations.
#include "run/golden.hpp"
#include "run/session.hpp"
#include "support/instruction_sets.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using test::GoldenCase;

namespace {

constexpr size_t tokens = 20;

// The first tokens of each text; nothing where the machine lacks the set.
std::vector<std::vector<int32_t>> texts(const std::vector<GoldenCase> &cases, const std::string &isa,
                                        const std::string &compute, const std::string &weights) {
    std::unique_ptr<Pipeline> pipeline;
    try {
        const std::vector<std::string> sets = {"model.path=" KEEL_SOURCE_DIR "/models/tiny",
                                               "model.weights=" + weights,
                                               "kv.dtype=f16",
                                               "policy.plugin=none",
                                               "strict=true",
                                               "backend.plugin=cpu",
                                               "backend.params.isa=" + isa,
                                               "backend.params.compute=" + compute};
        pipeline = std::make_unique<Pipeline>(pipeline::config_from_overrides(sets));
    } catch (const Error &e) {
        if (std::string(e.what()).find("is not available") == std::string::npos) throw;
        return {};
    }
    std::vector<std::vector<int32_t>> all;
    Session session(*pipeline);
    for (const GoldenCase &golden : cases) {
        session.reset();
        session.prefill(golden.ids);
        std::vector<int32_t> text;
        for (size_t i = 0; i < tokens; ++i) {
            text.push_back(session.greedy());
            session.decode(text.back());
        }
        all.push_back(text);
    }
    return all;
}

} // namespace

TEST_CASE("each instruction set writes the text that transformers wrote") {
    std::vector<GoldenCase> cases;
    for (GoldenCase &golden : test::read_golden("tiny_greedy.json"))
        if (golden.name == "dialogue" || golden.name == "echo") cases.push_back(golden);
    REQUIRE(cases.size() == 2);
    size_t sets = 0;
    for (const std::string isa : test::isa_names) {
        if (!test::is_isa_wanted(isa)) continue;
        for (const std::string compute : {"exact", "fast"}) {
            for (const std::string weights : {"bf16", "f16"}) {
                INFO(isa << ' ' << compute << ' ' << weights);
                const auto written = texts(cases, isa, compute, weights);
                if (written.empty()) continue;
                ++sets;
                for (size_t i = 0; i < cases.size(); ++i) {
                    INFO(cases[i].name);
                    const auto &want = cases[i].greedy;
                    CHECK(written[i] == std::vector<int32_t>(want.begin(), want.begin() + tokens));
                }
            }
        }
    }
    CHECK(sets >= 4); // of one set
}

TEST_CASE("quantized weights give one text on all instruction sets of a machine") {
    std::vector<GoldenCase> cases;
    for (GoldenCase &golden : test::read_golden("tiny_greedy.json"))
        if (golden.name == "echo") cases.push_back(golden);
    for (const std::string compute : {"exact", "fast"}) {
        for (const std::string weights : {"q8_0", "q4_0"}) {
            const auto want = texts(cases, "scalar", compute, weights);
            for (const std::string isa : test::isa_names) {
                // avx512bf16 has products of its own for types of 16 bits only
                if (isa == "scalar" || isa == "avx512bf16" || !test::is_isa_wanted(isa)) continue;
                INFO(isa << ' ' << compute << ' ' << weights);
                const auto written = texts(cases, isa, compute, weights);
                if (!written.empty()) CHECK(written == want);
            }
        }
    }
}
