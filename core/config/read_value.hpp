#pragma once

#include "config/config.hpp"
#include "config/schema.hpp"

#include <map>
#include <string>

namespace keel::pipeline {

// Internal: from a tree to typed values, by the schema.

// Puts a section's shorthand in its long form, `sync: lazy` as `sync: {strategy: lazy}`, in the whole tree.
void expand_shorthands(YamlNode &root);

// The values that a tree gives, by the key's path. Unknown keys and those that this version refuses throw.
std::map<std::string, const YamlEntry *, std::less<>> collect_values(const YamlNode &root);

// A value to be decoded and the key that says what it may be.
struct Field {
    const KeySpec &key;
    const YamlNode &node;
};

// Throws "WHERE: expected ... for 'PATH', found ...".
[[noreturn]] void fail(const Field &field, const std::string &found);

void decode(const Field &field, std::string &value);
void decode(const Field &field, std::filesystem::path &value);
void decode(const Field &field, int64_t &value);
void decode(const Field &field, double &value);
void decode(const Field &field, bool &value);
void decode(const Field &field, keel_dtype &value);
void decode(const Field &field, PositionMode &value);
void decode(const Field &field, SyncStrategy &value);
void decode(const Field &field, StepReplay &value);
void decode(const Field &field, StepAhead &value);
void decode(const Field &field, std::vector<Trigger> &value);
void decode(const Field &field, std::vector<std::string> &value);
void decode(const Field &field, std::vector<double> &value);
void decode(const Field &field, std::vector<Span> &value);
void decode(const Field &field, std::vector<RawParam> &value);
void decode(const Field &field, std::vector<SwitchTrigger> &value);
void decode(const Field &field, std::vector<HybridBackend> &value); // decode_hybrid.cpp
void decode(const Field &field, std::vector<LayerShare> &value);

template <typename T>
void decode(const Field &field, std::optional<T> &value) {
    const YamlNode &node = field.node;
    if (!field.key.word.empty() && node.kind == YamlNode::Kind::scalar && node.text == field.key.word) {
        value.reset();
        return;
    }
    T inner{};
    decode(field, inner);
    value = std::move(inner);
}

} // namespace keel::pipeline
