#pragma once

#include "config/codec.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace keel::pipeline {

// 2^24, which is more than any context; a float represents it exactly
inline constexpr double max_tokens = 16777216;
inline constexpr double max_mib = 16777216; // 16 TiB
// 2^53: the largest integer range that JSON holds exactly
inline constexpr double max_seed = 9007199254740992;

// For "policy.budget": parent_path() is "policy", last_part() is "budget". The parent of a
// top-level key is "".
std::string_view parent_path(std::string_view path);
std::string_view last_part(std::string_view path);
std::string join_path(std::string_view section, std::string_view key);

// The value of one key as YAML, and its place. The value is empty if the key has no value.
struct ResolvedKey {
    std::string path;
    std::string value;
    SourceLocation where; // the file is empty for a default
};

// The declaration of a key, without its type, member and default.
struct KeyFacts {
    std::string_view path;    // for example "policy.budget.tokens"
    std::string doc;          // what the key means, in sentences; names the unit
    std::string_view example; // a value other than the default
    Rule rule = {};
    bool required = false;
    // docs show this text in place of the default, unless it is empty
    std::string_view default_note = {};
};

// A key of the pipeline file. The key is bound to a member of Owner, and it reads, writes and
// describes the value of this member.
template <typename Owner> class Key : public KeyFacts {
  public:
    explicit Key(KeyFacts facts) : KeyFacts(std::move(facts)) {}
    virtual ~Key() = default;

    virtual Form form() const = 0;
    // Returns the allowed values, for messages and docs: "an integer from 1 to 16777216 or auto".
    virtual std::string expectation() const = 0;
    // Returns the default as YAML; empty if the key has no default.
    virtual std::string default_text() const = 0;
    // `full_path` is the path of the key in the file, for messages. `path` is the part of
    // `full_path` below the owner.
    virtual void set_default(const std::string &full_path, Owner &owner) const = 0;
    virtual void read(const YamlNode &node, const std::string &full_path, Owner &owner) const = 0;
    virtual void list(const Owner &owner, std::vector<ResolvedKey> &lines) const = 0;
    // Returns the place of the value, or NULL if the file does not give the key.
    virtual const SourceLocation *where(const Owner &owner) const = 0;

    // A key without a default can have an empty value. An empty value counts as not given.
    bool may_be_empty() const { return default_text().empty() && !required; }
};

template <typename Owner, typename T> class TypedKey final : public Key<Owner> {
  public:
    using Get = Setting<T> &(*)(Owner &);
    using GetConst = const Setting<T> &(*)(const Owner &);

    TypedKey(KeyFacts facts, Get get, GetConst get_const, std::optional<T> initial)
        : Key<Owner>(std::move(facts)), get_(get), get_const_(get_const),
          initial_(std::move(initial)) {
        if (!initial_ && !this->rule.word.empty()) initial_.emplace();
    }

    Form form() const override { return Codec<T>::form; }
    std::string expectation() const override { return Codec<T>::expectation(this->rule); }
    std::string default_text() const override {
        return initial_ ? Codec<T>::write(*initial_, this->rule) : std::string();
    }
    void set_default(const std::string &full_path, Owner &owner) const override {
        Setting<T> &setting = get_(owner);
        setting.key = full_path;
        if (initial_) setting.value = *initial_;
    }
    void read(const YamlNode &node, const std::string &full_path, Owner &owner) const override {
        Setting<T> &setting = get_(owner);
        setting.value = T{};
        Codec<T>::read({full_path, node, this->rule, &Codec<T>::expectation}, setting.value);
        setting.where = node.where();
    }
    void list(const Owner &owner, std::vector<ResolvedKey> &lines) const override {
        const Setting<T> &setting = get_const_(owner);
        const bool has_value =
            initial_ || this->required || !setting.is_default() || !(setting.value == T{});
        lines.push_back({std::string(this->path),
                         has_value ? Codec<T>::write(setting.value, this->rule) : std::string(),
                         setting.where});
    }
    const SourceLocation *where(const Owner &owner) const override {
        const Setting<T> &setting = get_const_(owner);
        return setting.is_default() ? nullptr : &setting.where;
    }

  private:
    Get get_;
    GetConst get_const_;
    std::optional<T> initial_;
};

// The parameters of a plugin. Each one has its own place in the file.
template <typename Owner> class ParamsKey final : public Key<Owner> {
  public:
    using Params = std::vector<RawParam>;
    using Get = Params &(*)(Owner &);
    using GetConst = const Params &(*)(const Owner &);

    ParamsKey(KeyFacts facts, Get get, GetConst get_const)
        : Key<Owner>(std::move(facts)), get_(get), get_const_(get_const) {}

    Form form() const override { return Codec<Params>::form; }
    std::string expectation() const override { return Codec<Params>::expectation(this->rule); }
    std::string default_text() const override { return {}; }
    void set_default(const std::string &, Owner &) const override {}
    void read(const YamlNode &node, const std::string &full_path, Owner &owner) const override {
        Codec<Params>::read({full_path, node, this->rule, &Codec<Params>::expectation},
                            get_(owner));
    }
    void list(const Owner &owner, std::vector<ResolvedKey> &lines) const override {
        const Params &params = get_const_(owner);
        if (params.empty()) lines.push_back({std::string(this->path), "{}", {}});
        for (const RawParam &param : params)
            lines.push_back(
                {join_path(this->path, yaml_scalar(param.key)), param_text(param), param.where});
    }
    const SourceLocation *where(const Owner &owner) const override {
        const Params &params = get_const_(owner);
        return params.empty() ? nullptr : &params.front().key_where;
    }

  private:
    Get get_;
    GetConst get_const_;
};

// Keys in the order of their declaration. They are shown in this order.
template <typename Owner> class KeyList {
  public:
    // `Get` returns the member, for example [](auto &c) -> auto & { return c.kv.dtype; }
    template <typename Get,
              typename T = decltype(std::remove_cvref_t<std::invoke_result_t<Get, Owner &>>::value)>
    void add(KeyFacts facts, Get, std::optional<std::type_identity_t<T>> initial = {}) {
        keys_.push_back(std::make_unique<TypedKey<Owner, T>>(
            std::move(facts), [](Owner &o) -> Setting<T> & { return Get{}(o); },
            [](const Owner &o) -> const Setting<T> & { return Get{}(o); }, std::move(initial)));
    }
    template <typename Get> void add_params(KeyFacts facts, Get) {
        using Params = std::vector<RawParam>;
        facts.default_note = "the plugin's own";
        keys_.push_back(std::make_unique<ParamsKey<Owner>>(
            std::move(facts), [](Owner &o) -> Params & { return Get{}(o); },
            [](const Owner &o) -> const Params & { return Get{}(o); }));
    }

    const Key<Owner> *find(std::string_view path) const {
        for (const auto &key : keys_) {
            if (key->path == path) return key.get();
        }
        return nullptr;
    }
    auto begin() const { return keys_.begin(); }
    auto end() const { return keys_.end(); }

  private:
    std::vector<std::unique_ptr<const Key<Owner>>> keys_;
};

} // namespace keel::pipeline
