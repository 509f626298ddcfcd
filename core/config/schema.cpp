#include "config/schema.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

namespace keel::pipeline {

std::string_view parent_path(std::string_view path) {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view last_part(std::string_view path) {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string join_path(std::string_view section, std::string_view key) {
    return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

// docs/reference/config.md and written pipelines show the sections in the order of these calls.
const Schema &schema() {
    static const Schema all = [] {
        Schema s;
        s.sections.push_back({"", "A pipeline: everything that a run depends on."});
        declare_model(s);
        declare_backend(s);
        declare_kv(s);
        declare_policy(s);
        declare_sync(s);
        declare_fallback(s);
        declare_hybrid(s);
        declare_sampling(s);
        return s;
    }();
    return all;
}

const Key<PipelineConfig> *find_key(std::string_view path) { return schema().keys.find(path); }

const SectionSpec *find_section(std::string_view path) {
    for (const SectionSpec &section : schema().sections) {
        if (section.path == path) return &section;
    }
    return nullptr;
}

std::string key_suggestion(std::string_view section, std::string_view unknown) {
    std::vector<std::string> known;
    const auto add = [&](std::string_view path) {
        if (!path.empty() && parent_path(path) == section) known.emplace_back(last_part(path));
    };
    for (const SectionSpec &s : schema().sections) add(s.path);
    for (const auto &key : schema().keys) add(key->path);
    std::string near = did_you_mean(unknown, known);
    if (!near.empty()) return near;
    for (const auto &key : schema().keys) {
        if (last_part(key->path) == unknown) return fmt::format("; did you mean '{}'?", key->path);
    }
    return fmt::format("; known keys: {}", fmt::join(known, ", "));
}

} // namespace keel::pipeline
