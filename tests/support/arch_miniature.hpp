#pragma once

#include "support/tiny_writer.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

// The miniatures of the files arch_logits.json, family_logits.json and moe_logits.json in
// tests/golden, one or more for each architecture. Their weights are generated in the same way as
// by the scripts next to these files.

namespace keel::test {

struct Miniature {
    std::string name;
    nlohmann::json config;
    struct Tensor {
        std::string name;
        std::vector<int64_t> shape;
        float center, scale;
    };
    std::vector<Tensor> tensors;
    int64_t context = 0; // the value for model.context; 0: any
};

inline std::vector<Miniature> read_miniatures(const std::string &file = "arch_logits.json") {
    std::ifstream in(std::string(KEEL_SOURCE_DIR "/tests/golden/") + file);
    const nlohmann::json json = nlohmann::json::parse(in);
    std::vector<Miniature> all;
    for (const auto &c : json.at("cases")) {
        Miniature m{c.at("name"), c.at("config"), {}, c.value("context", int64_t{0})};
        for (const auto &t : c.at("tensors"))
            m.tensors.push_back({t.at(0), t.at(1), t.at(2), t.at(3)});
        all.push_back(std::move(m));
    }
    return all;
}

inline Miniature read_miniature(const std::string &name) {
    for (const char *file : {"arch_logits.json", "family_logits.json", "moe_logits.json"})
        for (Miniature &m : read_miniatures(file))
            if (m.name == name) return std::move(m);
    throw std::runtime_error("no miniature " + name);
}

inline WrittenTensor make_tensor(const Miniature::Tensor &t) {
    WrittenTensor out{t.name, t.shape, {}};
    const int64_t count =
        std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
    uint64_t state = 0xCBF29CE484222325;
    for (const char c : t.name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    for (int64_t i = 0; i < count; ++i) {
        uint64_t z = state += 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        z ^= z >> 31;
        const float u = static_cast<float>(z >> 48) / 32768.0F - 1.0F;
        const float scaled = t.scale * u; // rounded separately, like NumPy: no fused multiply-add
        out.values.push_back(t.center == 0 ? scaled : t.center + scaled);
    }
    return out;
}

inline std::vector<WrittenTensor> make_tensors(const Miniature &m) {
    std::vector<WrittenTensor> tensors;
    for (const Miniature::Tensor &t : m.tensors) tensors.push_back(make_tensor(t));
    return tensors;
}

// Makes `folder` and writes config.json and the weights to it.
inline void write_miniature(const std::filesystem::path &folder, const Miniature &m,
                            const std::vector<WrittenTensor> &tensors) {
    std::filesystem::create_directories(folder);
    write_file(folder / "config.json", m.config.dump());
    write_safetensors(folder / "model.safetensors", tensors);
}

inline void write_miniature(const std::filesystem::path &folder, const Miniature &m) {
    write_miniature(folder, m, make_tensors(m));
}

// Returns the first `layers` layers of the model.
inline Miniature shortened(Miniature m, int64_t layers) {
    m.config["num_hidden_layers"] = layers;
    std::erase_if(m.tensors, [&](const Miniature::Tensor &t) {
        const std::string prefix = "model.layers.";
        return t.name.starts_with(prefix) && std::stoll(t.name.substr(prefix.size())) >= layers;
    });
    return m;
}

} // namespace keel::test
