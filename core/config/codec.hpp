#pragma once

#include "config/setting.hpp"
#include "config/words.hpp"
#include "config/yaml_document.hpp"

#include <keel/tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace keel::pipeline {

// Limits of a key's value, in addition to its type.
struct Rule {
    double minimum = 0, maximum = 0; // for a number, or for each number of a list
    // A word that means "not given" (auto, none). It is the default unless the key names another
    // default. For a key whose value is an element type, the word means KEEL_DTYPE_NONE (stored).
    std::string_view word = {};
    bool is_plugin = false; // the text is the name of a plugin, or a path to its library
};

// How a value is shown and written.
enum class Form {
    text,   // a scalar that can need quotes
    choice, // a word of a fixed list, or a list of these words
    map,    // a map; overrides merge it entry by entry
    other,
};

// A YAML value that is to be read, and its limits.
struct Field {
    std::string_view path; // path of the key, for messages
    const YamlNode &node;
    const Rule &rule;
    std::string (*expectation)(const Rule &);

    Field at(const YamlNode &item) const { return {path, item, rule, expectation}; }
};

// Throws Error(input) "FILE:LINE:COLUMN: expected ... for 'PATH', found ...".
[[noreturn]] void fail(const Field &field, const std::string &found);

// How a type is read from YAML, written as YAML, and described. There is one specialization for
// each type. Its members are:
// - form: how the value is shown
// - read: reads a field; throws as fail() does
// - write: writes YAML that read() turns into the same value; an empty text means "not given"
// - expectation: returns the allowed values for messages and docs: "an integer from 1 to 8", "one
//   of f32, f16"
template <typename T> struct Codec;

template <> struct Codec<std::string> {
    static constexpr Form form = Form::text;
    static void read(const Field &field, std::string &value);
    static std::string write(const std::string &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<std::filesystem::path> {
    static constexpr Form form = Form::text;
    static void read(const Field &field, std::filesystem::path &value);
    static std::string write(const std::filesystem::path &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<int64_t> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, int64_t &value);
    static std::string write(int64_t value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<double> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, double &value);
    static std::string write(double value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<bool> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, bool &value);
    static std::string write(bool value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<keel_dtype> {
    static constexpr Form form = Form::choice;
    static void read(const Field &field, keel_dtype &value);
    static std::string write(keel_dtype value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<std::vector<std::string>> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, std::vector<std::string> &value);
    static std::string write(const std::vector<std::string> &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
// A list of numbers. Each number must be less than the number before it.
template <> struct Codec<std::vector<double>> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, std::vector<double> &value);
    static std::string write(const std::vector<double> &value, const Rule &rule);
    static std::string expectation(const Rule &rule);
};
template <> struct Codec<std::vector<RawParam>> {
    static constexpr Form form = Form::map;
    static void read(const Field &field, std::vector<RawParam> &value);
    static std::string expectation(const Rule &rule);
};

std::string param_text(const RawParam &param); // the value as YAML

// Returns the text of a scalar. Fails if the node is not a scalar.
const std::string &scalar_text(const Field &field);
// Returns the index of the field's word in `words`. If `words` does not have the word, throws an
// error that suggests the nearest word of `words`.
size_t choice_index(const Field &field, std::span<const std::string_view> words);
// Returns "[a, b]". Quotes each item that needs quotes.
std::string flow_list(std::span<const std::string> items);
// Returns a text as a YAML scalar that is read as the same text. Uses quotes only if they are
// needed.
std::string yaml_scalar(std::string_view text);
std::string number_text(double value); // 2^24 is "16777216", not "1.6777216e7"

template <typename E> std::vector<std::string_view> words_of() {
    std::vector<std::string_view> words;
    for (const Word<E> &word : Words<E>::all) words.push_back(word.word);
    return words;
}

std::string joined(std::span<const std::string_view> words); // "a, b"

template <typename E>
requires std::is_enum_v<E>
struct Codec<E> {
    static constexpr Form form = Form::choice;
    static void read(const Field &field, E &value) {
        value = Words<E>::all[choice_index(field, words_of<E>())].value;
    }
    static std::string write(E value, const Rule &) {
        for (const Word<E> &word : Words<E>::all) {
            if (word.value == value) return std::string(word.word);
        }
        return {};
    }
    static std::string expectation(const Rule &) { return "one of " + joined(words_of<E>()); }
};

// A list of words without repeated words. A single word is a list with one word.
template <typename E>
requires std::is_enum_v<E>
struct Codec<std::vector<E>> {
    static constexpr Form form = Form::choice;
    static void read(const Field &field, std::vector<E> &value) {
        const bool is_list = field.node.kind == YamlNode::Kind::sequence;
        if (!is_list) return add(field, value);
        for (const YamlNode &item : field.node.items) add(field.at(item), value);
    }
    static std::string write(const std::vector<E> &value, const Rule &rule) {
        std::vector<std::string> words;
        for (const E one : value) words.push_back(Codec<E>::write(one, rule));
        return flow_list(words);
    }
    static std::string expectation(const Rule &) { return "a list of " + joined(words_of<E>()); }

  private:
    static void add(const Field &field, std::vector<E> &value) {
        E one{};
        Codec<E>::read(field, one);
        for (const E before : value) {
            if (before == one) fail(field, describe(field.node) + " twice");
        }
        value.push_back(one);
    }
};

template <typename T> struct Codec<std::optional<T>> {
    static constexpr Form form = Codec<T>::form;
    static void read(const Field &field, std::optional<T> &value) {
        const YamlNode &node = field.node;
        const std::string_view word = field.rule.word;
        if (!word.empty() && node.kind == YamlNode::Kind::scalar && node.text == word) {
            value.reset();
            return;
        }
        T inner{};
        Codec<T>::read(field, inner);
        value = std::move(inner);
    }
    static std::string write(const std::optional<T> &value, const Rule &rule) {
        return value ? Codec<T>::write(*value, rule) : std::string(rule.word);
    }
    static std::string expectation(const Rule &rule) { return Codec<T>::expectation(rule); }
};

} // namespace keel::pipeline
