// Tests of the memory that Keel holds for the shipped policies in addition to the cache, with the
// shape of SmolLM2-135M. The test prints the table of docs/reference/policies.md.
#include "kv/rig.hpp"
#include "plugin/library.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace keel;
using namespace keel::test;

namespace {

constexpr int64_t prompt_tokens = 4096, decoded_tokens = 40;

KvShape smollm2_shape() {
    KvShape shape;
    shape.layers = 30;
    shape.heads = 9;
    shape.kv_heads = 3;
    shape.head_dim = 64;
    shape.max_slots = 8192;
    return shape;
}

// Runs only the ops of a step that write inputs of a policy. Keys and values stay zero.
class HollowModel final : public SequenceForward {
  public:
    HollowModel(CacheManager &manager, const KvShape &shape, const Executor &executor)
        : manager_(manager), shape_(shape),
          q_(Tensor::allocate(executor.device(), KEEL_DTYPE_F32,
                              {512, shape.heads, shape.head_dim})) {
        std::vector<float> rows(q_.bytes() / sizeof(float));
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 13) / 13 - 0.5F;
        q_.write(rows.data());
    }
    // Returns the number of bytes that are held after the step's ops were queued.
    uint64_t step(int64_t n, StepKind kind) {
        for (int64_t i = 0; i < n; ++i) tokens_.push_back(static_cast<int32_t>(i));
        manager_.before_append(n, kind);
        manager_.append(n);
        if (StepTap *tap = manager_.begin_step(n, kind)) {
            for (uint32_t l = 0; l < shape_.layers; ++l) {
                const StepTap::Places places = tap->places(l);
                if (places.unrotated != nullptr)
                    places.unrotated->write(
                        std::vector<float>(places.unrotated->bytes() / sizeof(float), 0.25F)
                            .data());
                tap->after_attention(l, q_.rows(0, n));
            }
        }
        const uint64_t held = manager_.policy_bytes();
        manager_.after_step(kind);
        return held;
    }

    std::span<const int32_t> tokens() const override { return tokens_; }
    std::span<const int32_t> instruction(bool) const override { return words_; }
    void forward(std::span<const int32_t>, std::span<const int32_t>, StepTap &) override {}

  private:
    CacheManager &manager_;
    KvShape shape_;
    Tensor q_;
    std::vector<int32_t> tokens_, words_ = std::vector<int32_t>(12);
};

struct Held {
    uint64_t prompt = 0, after = 0, decoding = 0; // in bytes
};

Held measure(const std::string &name) {
    const PluginLibrary library(
        std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" / (name + ".so"), {});
    const ParamValues params = library.params().bind({}, {});
    CacheConfig config;
    config.policy = {library.id(), &library.policy(), params.data(), params.size()};
    config.budget_unit = BudgetUnit::tokens;
    config.budget = prompt_tokens / 4;
    config.trained_context = 8192;
    for (int i = 0; i < 32; ++i) config.rope_frequencies.push_back(std::pow(1e5, -i / 32.0));
    const KvShape shape = smollm2_shape();
    const auto executor = open_executor("cpu");
    PolicySetup setup(*executor, shape, executor->device().host(), config);
    CacheManager manager(setup, executor->placement());
    HollowModel model(manager, shape, *executor);
    manager.set_forward(&model);
    Held held;
    for (int64_t left = prompt_tokens; left > 0;) {
        const int64_t n = manager.next_chunk(left, 512);
        left -= n;
        held.prompt = std::max(
            held.prompt, model.step(n, left > 0 ? StepKind::prefill_chunk : StepKind::prefill_end));
    }
    CHECK(manager.policy_peak_bytes() >= held.prompt);
    CHECK(manager.held_peak_bytes() >= manager.held_bytes() + manager.freed_bytes());
    held.prompt = std::max(held.prompt, manager.policy_peak_bytes());
    held.after = manager.policy_bytes();
    for (int64_t i = 0; i < decoded_tokens; ++i)
        held.decoding = std::max(held.decoding, model.step(1, StepKind::decode));
    CHECK(manager.policy_peak_bytes() >= held.decoding);
    const uint64_t told = CacheManager::policy_bytes(setup, prompt_tokens, prompt_tokens);
    INFO(name << ": " << told << " bytes are told before, " << held.prompt << " are held");
    CHECK(told + told / 4 >= held.prompt);
    return held;
}

double percent(uint64_t bytes) {
    const KvShape shape = smollm2_shape();
    const double full = static_cast<double>(shape.layers * shape.kv_heads * shape.block_bytes()) *
                        static_cast<double>(prompt_tokens / shape.block_slots);
    return 100 * static_cast<double>(bytes) / full;
}

std::string cell(uint64_t bytes) {
    if (bytes < 100) return "0";
    return fmt::format("{:.0f} KiB ({:.1f}%)", static_cast<double>(bytes) / 1024, percent(bytes));
}

} // namespace

TEST_CASE("Shipped policies hold the memory that docs/reference/policies.md states, and one-shot "
          "policies release it") {
    need_cpu_plugin();
    std::ifstream file(KEEL_SOURCE_DIR "/docs/reference/policies.md");
    std::stringstream docs;
    docs << file.rdbuf();
    std::string table;
    bool is_current = true;
    for (const std::string name :
         {"none", "random", "sliding_window", "snapkv", "h2o", "tova", "keydiff", "knorm",
          "expected_attention", "compactor", "kvzip"}) {
        const Held held = measure(name);
        INFO(name);
        CHECK(percent(held.prompt) <= 10);
        const bool acts_once = name == "snapkv" || name == "compactor" || name == "kvzip";
        if (acts_once) CHECK(percent(std::max(held.after, held.decoding)) <= 2);
        const std::string row = fmt::format("| {} | {} | {} | {} |\n", name, cell(held.prompt),
                                            cell(held.after), cell(held.decoding));
        is_current = is_current && docs.str().find(row) != std::string::npos;
        table += row;
    }
    INFO("the table of docs/reference/policies.md should have these rows:\n" << table);
    CHECK(is_current);
}
