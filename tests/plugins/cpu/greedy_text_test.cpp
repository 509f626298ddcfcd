// Checks that models/tiny gives the greedy text of transformers with each instruction set of the
// machine, with f32 products and with products of rounded activations.
#include "run/golden.hpp"
#include "run/session.hpp"
#include "support/instruction_sets.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace keel;
using test::GoldenCase;

namespace {

constexpr size_t tokens = 20;

// Returns the first tokens of each text, or nothing if the machine does not have the instruction
// set.
std::vector<std::vector<int32_t>> texts(const std::vector<GoldenCase> &cases,
                                        const std::string &isa, const std::string &compute,
                                        const std::string &weights) {
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

std::vector<GoldenCase> golden_cases(const std::set<std::string> &names) {
    std::vector<GoldenCase> cases;
    for (GoldenCase &golden : test::read_golden("tiny_greedy.json"))
        if (names.count(golden.name) != 0) cases.push_back(golden);
    REQUIRE(cases.size() == names.size());
    return cases;
}

// Types for the instruction sets, so that each has its own test case.
#define KEEL_TEST_ISA(NAME)                                                                        \
    struct NAME {                                                                                  \
        static constexpr const char *name = #NAME;                                                 \
    }
KEEL_TEST_ISA(scalar);
#if defined(__aarch64__)
KEEL_TEST_ISA(neon);
KEEL_TEST_ISA(dotprod);
KEEL_TEST_ISA(fp16);
KEEL_TEST_ISA(i8mm);
#define KEEL_TEST_ISAS scalar, neon, dotprod, fp16, i8mm
#else
KEEL_TEST_ISA(avx2);
KEEL_TEST_ISA(avx512);
KEEL_TEST_ISA(vnni);
KEEL_TEST_ISA(avx512bf16);
KEEL_TEST_ISA(amx);
#define KEEL_TEST_ISAS scalar, avx2, avx512, vnni, avx512bf16, amx
#endif

} // namespace

TEMPLATE_TEST_CASE("an instruction set writes the text that transformers wrote", "",
                   KEEL_TEST_ISAS) {
    const std::string isa = TestType::name;
    if (!test::is_isa_wanted(isa)) test::skip("KEEL_TEST_ISAS does not name " + isa);
    const std::vector<GoldenCase> cases = golden_cases({"dialogue", "echo"});
    for (const std::string compute : {"exact", "fast"}) {
        for (const std::string weights : {"bf16", "f16"}) {
            INFO(isa << ' ' << compute << ' ' << weights);
            const auto written = texts(cases, isa, compute, weights);
            if (written.empty()) test::skip("this processor has no " + isa);
            for (size_t i = 0; i < cases.size(); ++i) {
                INFO(cases[i].name);
                const auto &want = cases[i].greedy;
                CHECK(written[i] == std::vector<int32_t>(want.begin(), want.begin() + tokens));
            }
        }
    }
}

TEST_CASE("quantized weights give the same text on all instruction sets of a machine") {
    const std::vector<GoldenCase> cases = golden_cases({"echo"});
    size_t compared = 0;
    for (const std::string compute : {"exact", "fast"}) {
        for (const std::string weights : {"q8_0", "q4_0"}) {
            const auto want = texts(cases, "scalar", compute, weights);
            for (const std::string isa : test::isa_names) {
                // avx512bf16 differs from vnni only for 16-bit types.
                if (isa == "scalar" || isa == "avx512bf16" || !test::is_isa_wanted(isa)) continue;
                INFO(isa << ' ' << compute << ' ' << weights);
                const auto written = texts(cases, isa, compute, weights);
                if (written.empty()) continue;
                CHECK(written == want);
                ++compared;
            }
        }
    }
    if (compared == 0) test::skip("no instruction set to compare with scalar");
}
