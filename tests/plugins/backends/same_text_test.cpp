// Compares the greedy text of models/tiny on each GPU backend with the CPU's, for KV dtypes,
// policies and sync strategies. The logits must be nearer to the CPU's logits than the CPU's logits
// with an f32 cache. The texts must be the same, or differ only after logits that are this close.
#include "run/generate.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace keel;
using test::opencl;
using test::vulkan;

namespace {

struct Cell {
    std::string kv, policy, sync;
    int64_t tokens = 20;
};

const char *const kv_dtypes[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
const char *const policies[] = {"none", "sliding_window", "snapkv"};
const char *const strategies[] = {"eager", "batched", "lazy", "auto"};

std::vector<Cell> diagonal() {
    std::vector<Cell> all;
    for (size_t k = 0; k < 5; ++k)
        all.push_back({kv_dtypes[k], policies[k % 3], strategies[k % 4]});
    return all;
}

std::vector<Cell> whole_grid() {
    std::vector<Cell> all;
    for (size_t k = 0; k < 5; ++k)
        for (size_t p = 0; p < 3; ++p)
            for (size_t s = 0; s < 4; ++s)
                all.push_back({kv_dtypes[k], policies[p], strategies[s],
                               // runs on the diagonal of the grid are longer
                               p == k % 3 && s == k % 4 ? 200 : 20});
    return all;
}

const std::string opening =
    "Once upon a time there was a king who had three daughters, and the youngest of "
    "them was so fair that the sun";

std::vector<std::string> config_of(const std::string &backend, const Cell &cell) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "kv.dtype=" + cell.kv,
                                     "policy.plugin=" + cell.policy,
                                     "sync.strategy=" + cell.sync,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"};
    if (cell.policy != "none")
        sets.push_back("policy.budget.tokens=16"); // the prompt is longer than this
    if (cell.policy == "snapkv") sets.push_back("policy.params.window=8");
    if (backend == "cpu") sets.push_back("backend.params.compute=exact");
    return sets;
}

struct Run {
    std::vector<int32_t> text;
    std::vector<std::vector<float>> logits; // the logits before each token
};

// Generates greedily. If tokens are given, feeds these tokens and stores the logits before each.
Run run(Pipeline &pipeline, int64_t tokens, const std::vector<int32_t> *given = nullptr) {
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(opening));
    Run out;
    for (size_t i = 0; i < static_cast<size_t>(tokens); ++i) {
        out.text.push_back(given != nullptr ? (*given)[i] : session.greedy());
        out.logits.emplace_back(session.logits().begin(), session.logits().end());
        session.decode(out.text.back());
    }
    return out;
}

// Returns the largest difference between logits of two runs, up to the first token in which their
// texts differ.
double distance(const Run &a, const Run &b) {
    double worst = 0;
    for (size_t i = 0; i < a.text.size(); ++i) {
        for (size_t j = 0; j < a.logits[i].size(); ++j)
            worst = std::max(worst, std::abs(static_cast<double>(a.logits[i][j]) - b.logits[i][j]));
        if (a.text[i] != b.text[i]) break;
    }
    return worst;
}

// The result of the CPU, and its distance to the CPU's result with an f32 cache for the same text.
// This distance is the error of the KV dtype.
struct Expected {
    Run run;
    double own_error = 0;
};

Expected expect(const Cell &cell) {
    Expected out;
    Pipeline cpu(pipeline::config_from_overrides(config_of("cpu", cell)));
    out.run = run(cpu, cell.tokens);
    if (cell.kv == "f32") return out;
    Cell exact = cell;
    exact.kv = "f32";
    Pipeline full(pipeline::config_from_overrides(config_of("cpu", exact)));
    out.own_error = distance(out.run, run(full, cell.tokens, &out.run.text));
    return out;
}

SyncStrategy strategy_of(const std::string &name) {
    if (name == "eager") return {SyncStrategy::Kind::eager, 0};
    if (name == "batched") return {SyncStrategy::Kind::batched, 50};
    if (name == "lazy") return {SyncStrategy::Kind::lazy, 0};
    return {};
}

// Gives a pipeline for each combination of the grid, in order. If a combination differs from the
// previous one only in the sync strategy, the same pipeline is used with another strategy. Long
// runs (more than 20 tokens) always get their own pipeline.
class Pipelines {
  public:
    Pipeline &get(const std::string &backend, const Cell &cell) {
        const std::string key = backend + cell.kv + cell.policy;
        if (cell.tokens > 20 || key != key_) {
            pipeline_.reset();
            pipeline_ = std::make_unique<Pipeline>(
                pipeline::config_from_overrides(config_of(backend, cell)));
            key_ = key;
        } else {
            pipeline_->executor().stream().set_strategy(strategy_of(cell.sync));
        }
        return *pipeline_;
    }

  private:
    std::unique_ptr<Pipeline> pipeline_;
    std::string key_;
};

void check_texts(const std::string &backend, const std::vector<Cell> &cells) {
    std::map<std::string, Expected> expected; // on the CPU, sync strategies make no difference
    Pipelines pipelines;
    for (const Cell &cell : cells) {
        INFO(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.sync);
        const std::string key = cell.kv + cell.policy + std::to_string(cell.tokens);
        if (expected.find(key) == expected.end()) expected.emplace(key, expect(cell));
        const Expected &cpu = expected.at(key);
        const Run mine = run(pipelines.get(backend, cell), cell.tokens);
        // A GPU sums in another order, so a few keys and values round to the neighbouring code. On
        // the CPU, each of them was rounded once too.
        const double gap = distance(mine, cpu.run), bound = 1e-3 + cpu.own_error;
        INFO("logits " << gap << " apart, the type's own error " << cpu.own_error);
        CHECK(gap < bound);
        if (mine.text == cpu.run.text) continue;
        size_t at = 0;
        while (mine.text[at] == cpu.run.text[at]) ++at;
        WARN(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.sync
                     << ": texts part at token " << at << ", logits " << gap << " apart, bound "
                     << bound);
    }
}

} // namespace

TEMPLATE_TEST_CASE("a GPU backend writes the text of the CPU", "", opencl, vulkan) {
    check_texts(test::here<TestType>(), diagonal());
}

TEMPLATE_TEST_CASE("a GPU backend writes the text of the CPU in the whole grid", "[grid]", opencl,
                   vulkan) {
    check_texts(test::here<TestType>(), whole_grid());
}
