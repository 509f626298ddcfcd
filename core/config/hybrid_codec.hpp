#pragma once

#include "config/codec.hpp"
#include "config/hybrid_section.hpp"

#include <string>
#include <vector>

namespace keel::pipeline {

// Example: {gpu: {plugin: cpu, device: auto, params: {threads: 2}, kv: {dtype: f16}}, host: cpu}
template <> struct Codec<std::vector<HybridBackend>> {
    static constexpr Form form = Form::map;
    static void read(const Field &field, std::vector<HybridBackend> &value);
    static std::string write(const std::vector<HybridBackend> &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};

// Example: [{range: 0-15, on: gpu}, {range: 16, on: host}]
template <> struct Codec<std::vector<LayerShare>> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, std::vector<LayerShare> &value);
    static std::string write(const std::vector<LayerShare> &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};

} // namespace keel::pipeline
