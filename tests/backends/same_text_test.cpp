// The greedy text of models/tiny on each GPU backend, against the CPU's: KV dtypes x policies x sync strategies. Where two texts part, the
// logits say why: they are as near as the dtype allows, and the two tokens as near to each other as that.
#include "pipeline/generate.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

using namespace keel;

namespace {

struct PoclCache {
    PoclCache() {
        setenv("POCL_CACHE_DIR", KEEL_POCL_CACHE, 0);
        setenv("XDG_CACHE_HOME", KEEL_BINARY_DIR "/cache", 0);
    }
};
const PoclCache pocl_cache;

struct Cell {
    std::string kv, policy, sync;
    int64_t tokens = 20;
};

const char *const kv_dtypes[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
const char *const policies[] = {"none", "sliding_window", "snapkv"};
const char *const strategies[] = {"eager", "batched", "lazy", "auto"};

std::vector<Cell> cells() {
    std::vector<Cell> all;
    for (size_t k = 0; k < 5; ++k)
        for (size_t p = 0; p < 3; ++p)
            for (size_t s = 0; s < 4; ++s) {
                const bool diagonal = p == k % 3 && s == k % 4;
#ifdef KEEL_WHOLE_GRID
                all.push_back({kv_dtypes[k], policies[p], strategies[s], diagonal ? 200 : 20});
#else
                if (diagonal) all.push_back({kv_dtypes[k], policies[p], strategies[s]});
#endif
            }
    return all;
}

const std::string opening = "Once upon a time there was a king who had three daughters, and the youngest of "
                            "them was so fair that the sun";

// How far logits may lie apart when keys and values are rounded where they differ in their last bits.
double bound_of(const std::string &kv) {
    return kv == "f32" ? 1e-3 : kv == "f16" ? 0.02 : kv == "bf16" ? 0.15 : kv == "q8_0" ? 0.3 : 3.0;
}

std::vector<std::string> config_of(const std::string &backend, const Cell &cell) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "kv.dtype=" + cell.kv,
                                     "policy.plugin=" + cell.policy,
                                     "sync.strategy=" + cell.sync,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"};
    if (cell.policy != "none") sets.push_back("policy.budget.tokens=16"); // less than the prompt has
    if (cell.policy == "snapkv") sets.push_back("policy.params.window=8");
    if (backend == "cpu") sets.push_back("backend.params.compute=exact");
    return sets;
}

std::vector<int32_t> text_of(Pipeline &pipeline, int64_t tokens) {
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    return generate(session, pipeline.tokenizer()->encode(opening), options).ids;
}

// Where the texts part: both sequences with the same tokens so far, and their logits.
void explain(Pipeline &cpu, Pipeline &gpu, const std::vector<int32_t> &mine,
             const std::vector<int32_t> &theirs, const Cell &cell) {
    size_t at = 0;
    while (at < mine.size() && at < theirs.size() && mine[at] == theirs[at])
        ++at;
    REQUIRE(at < mine.size());
    REQUIRE(at < theirs.size());
    Session a(cpu), b(gpu);
    const std::vector<int32_t> prompt = cpu.tokenizer()->encode(opening);
    a.prefill(prompt);
    b.prefill(prompt);
    for (size_t i = 0; i < at; ++i) {
        a.decode(theirs[i]);
        b.decode(theirs[i]);
    }
    const std::vector<float> x(a.logits().begin(), a.logits().end()), y(b.logits().begin(), b.logits().end());
    double gap = 0;
    for (size_t i = 0; i < x.size(); ++i)
        gap = std::max(gap, std::abs(static_cast<double>(x[i]) - y[i]));
    const double between =
        static_cast<double>(x[static_cast<size_t>(theirs[at])]) - x[static_cast<size_t>(mine[at])];
    WARN("texts part at token " << at << ": logits " << gap << " apart, the tokens " << between);
    CHECK(gap < bound_of(cell.kv));
    CHECK(between <= 2 * gap);
}

// False if this machine has no device for the backend.
bool is_here(const std::string &backend) {
    try {
        Pipeline pipeline(pipeline::config_from_overrides(config_of(backend, {"f32", "none", "auto"})));
        return true;
    } catch (const Error &error) {
        if (std::string(error.what()).find("finds no device") == std::string::npos) throw;
        WARN(error.what());
        return false;
    }
}

} // namespace

TEST_CASE("every GPU backend writes the text of the CPU") {
    std::istringstream words(KEEL_BACKENDS);
    std::map<std::string, std::vector<int32_t>> expected; // strategies do not matter on the CPU
    for (std::string backend; words >> backend;) {
        if (!is_here(backend)) continue;
        for (const Cell &cell : cells()) {
            INFO(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.sync);
            Pipeline cpu(pipeline::config_from_overrides(config_of("cpu", cell)));
            std::vector<int32_t> &theirs = expected[cell.kv + cell.policy + std::to_string(cell.tokens)];
            if (theirs.empty()) theirs = text_of(cpu, cell.tokens);
            CHECK(theirs.size() == static_cast<size_t>(cell.tokens));
            Pipeline gpu(pipeline::config_from_overrides(config_of(backend, cell)));
            const std::vector<int32_t> mine = text_of(gpu, cell.tokens);
            CHECK(mine.size() == theirs.size());
            if (mine != theirs) explain(cpu, gpu, mine, theirs, cell);
        }
    }
}
