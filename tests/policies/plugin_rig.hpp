#pragma once

#include "plugin/host.hpp"
#include "plugin/library.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace keel::test {

// A policy or allocator of the build tree, with its parameters.
struct LoadedPlugin {
    explicit LoadedPlugin(const std::string &name,
                          const std::map<std::string, std::string> &given = {})
        : library(std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" / (name + ".so"),
                  {}) {
        std::vector<GivenParam> rows;
        for (const auto &[key, text] : given)
            rows.push_back({key, text, GivenParam::Form::plain, {}, {}});
        params = library.params().bind(rows, {});
    }
    PluginLibrary library;
    ParamValues params;
};

// The facts about a model that a policy receives.
struct TestModel {
    TestModel(uint32_t layers, uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
              bool interleaved = false) {
        geometry.layers = layers;
        geometry.heads = heads;
        geometry.kv_heads = kv_heads;
        geometry.head_dim = head_dim;
        geometry.context = 4096;
        geometry.rot = head_dim;
        for (uint32_t i = 0; i < head_dim / 2; ++i)
            frequencies.push_back(std::pow(100.0, -static_cast<double>(i) / (head_dim / 2)));
        geometry.rope_frequencies = frequencies.data();
        geometry.rope_mode = interleaved ? KEEL_ROPE_INTERLEAVED : KEEL_ROPE_HALF_SPLIT;
        geometry.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    }
    TestModel(const TestModel &) = delete;
    keel_geometry geometry = {KEEL_HEADER(keel_geometry)};
    std::vector<double> frequencies;
};

// The state of one sequence. Its functions call the policy's table as a host would.
class PolicyRun {
  public:
    PolicyRun(const LoadedPlugin &plugin, const TestModel &model, uint64_t seed = 1)
        : table_(plugin.library.policy()) {
        HostServices::drop_error();
        status = table_.create(host_.table(), &model.geometry, plugin.params.data(),
                               plugin.params.size(), seed, &needs, &state_);
        if (status != KEEL_OK) state_ = nullptr;
    }
    ~PolicyRun() { table_.destroy(state_); }
    PolicyRun(const PolicyRun &) = delete;

    keel_status decide(const keel_policy_input &input, std::vector<float> &scores,
                       std::vector<uint8_t> &stay) {
        const size_t cells = input.kv_heads * static_cast<size_t>(input.stride);
        scores.assign(cells, -77.0f);
        stay.assign(cells, 0);
        keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision), scores.data(), nullptr,
                                         nullptr, stay.data()};
        HostServices::drop_error();
        return table_.decide(state_, &input, &decision);
    }
    static std::string error() {
        const auto error = HostServices::take_error();
        return error ? error->message : "";
    }

    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    keel_status status = KEEL_OK;

  private:
    HostServices host_{2};
    keel_policy table_;
    keel_policy_state *state_ = nullptr;
};

// Calls an allocator. The result is the budgets, [layers * kv_heads]. The scores of a layer may be
// empty.
struct AllocatorRun {
    AllocatorRun(const LoadedPlugin &plugin, const TestModel &model)
        : table(plugin.library.allocator()) {
        HostServices::drop_error();
        status = table.create(host.table(), &model.geometry, plugin.params.data(),
                              plugin.params.size(), &needs, &state);
        if (status != KEEL_OK) {
            state = nullptr;
            error = PolicyRun::error();
        }
    }
    ~AllocatorRun() { table.destroy(state); }
    AllocatorRun(const AllocatorRun &) = delete;

    std::vector<int32_t> allocate(keel_allocator_input input) {
        std::vector<int32_t> budgets(size_t{input.layers} * input.kv_heads, -1);
        HostServices::drop_error();
        status = table.allocate(state, &input, budgets.data());
        if (status != KEEL_OK) error = PolicyRun::error();
        return budgets;
    }

    HostServices host{1};
    keel_allocator table;
    keel_allocator_needs needs = {KEEL_HEADER(keel_allocator_needs)};
    keel_allocator_state *state = nullptr;
    keel_status status = KEEL_OK;
    std::string error;
};

} // namespace keel::test
