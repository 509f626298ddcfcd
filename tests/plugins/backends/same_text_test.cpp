// The greedy text of models/tiny on each GPU backend, against the CPU's: KV dtypes x policies x sync strategies. Logits are nearer to the
// CPU's than those of the CPU with a cache in f32; the texts are the same, or part behind such logits.
#include "run/generate.hpp"
#include "support/driver_caches.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

using namespace keel;

namespace {

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

struct Run {
    std::vector<int32_t> text;
    std::vector<std::vector<float>> logits; // before each token
};

// Greedily; or the tokens that are given, and what the model says before each.
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

// The largest distance between logits of two runs, up to the first token in which their texts part.
double distance(const Run &a, const Run &b) {
    double worst = 0;
    for (size_t i = 0; i < a.text.size(); ++i) {
        for (size_t j = 0; j < a.logits[i].size(); ++j)
            worst = std::max(worst, std::abs(static_cast<double>(a.logits[i][j]) - b.logits[i][j]));
        if (a.text[i] != b.text[i]) break;
    }
    return worst;
}

// What the CPU says, and how far it is from itself with a cache in f32 when it is given the same text: what the type costs.
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

// A pipeline for each of the cells as they come. A strategy is all that cells side by side differ in: the pipeline of the one before is taken
// again, but where a cell's own config is to be gone through.
class Pipelines {
  public:
    Pipeline &get(const std::string &backend, const Cell &cell) {
        const std::string key = backend + cell.kv + cell.policy;
        if (cell.tokens > 20 || key != key_) {
            pipeline_.reset();
            pipeline_ = std::make_unique<Pipeline>(pipeline::config_from_overrides(config_of(backend, cell)));
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
    std::map<std::string, Expected> expected; // strategies do not matter on the CPU
    Pipelines pipelines;
    for (std::string backend; words >> backend;) {
        if (!is_here(backend)) continue;
        for (const Cell &cell : cells()) {
            INFO(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.sync);
            const std::string key = cell.kv + cell.policy + std::to_string(cell.tokens);
            if (expected.find(key) == expected.end()) expected.emplace(key, expect(cell));
            const Expected &cpu = expected.at(key);
            const Run mine = run(pipelines.get(backend, cell), cell.tokens);
            // Sums in another order round a few keys and values to the neighbouring code; all of them were rounded once, on the CPU too.
            const double gap = distance(mine, cpu.run), bound = 1e-3 + cpu.own_error;
            INFO("logits " << gap << " apart, the type's own error " << cpu.own_error);
            CHECK(gap < bound);
            if (mine.text == cpu.run.text) continue;
            size_t at = 0;
            while (mine.text[at] == cpu.run.text[at])
                ++at;
            WARN(backend << ", KV " << cell.kv << ", " << cell.policy << ", " << cell.sync
                         << ": texts part at token " << at << ", logits " << gap << " apart, bound "
                         << bound);
        }
    }
}
