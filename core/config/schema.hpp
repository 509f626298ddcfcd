#pragma once

#include "config/config.hpp"
#include "config/key.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace keel::pipeline {

struct SectionSpec {
    std::string_view path; // "policy.budget"; "" for the whole file
    std::string_view doc;
    // `sync: lazy` is the short form of `sync: {strategy: lazy}`. This is the key (`strategy`) that
    // the short form sets.
    std::string_view shorthand = {};
};

// The sections and keys of the pipeline file. Each NAME_section.cpp declares its own section and
// keys.
struct Schema {
    std::vector<SectionSpec> sections;
    KeyList<PipelineConfig> keys;
};

void declare_model(Schema &schema);
void declare_backend(Schema &schema);
void declare_kv(Schema &schema);
void declare_policy(Schema &schema);
void declare_sync(Schema &schema);
void declare_fallback(Schema &schema); // declares `strict` and `fallback`
void declare_hybrid(Schema &schema);
void declare_sampling(Schema &schema); // declares `sampling` and `generation`

const Schema &schema();
const Key<PipelineConfig> *find_key(std::string_view path);
const SectionSpec *find_section(std::string_view path);

// Returns the end of the message about the unknown key `unknown` in `section`.
// - If a key of `section` has a similar name, the text suggests this key.
// - Otherwise, if another section has a key with the name `unknown`, the text names this section.
// - Otherwise the text lists all keys of `section`.
std::string key_suggestion(std::string_view section, std::string_view unknown);

} // namespace keel::pipeline
