#include "server/service/keel_fields.hpp"

#include "server/service/api_error.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

namespace keel::server {
namespace {

constexpr int64_t most_tokens = 1 << 24;
constexpr size_t most_spans = 1024, longest_word = 64, most_params = 64;

// A word that is safe in YAML text and that is no path.
bool is_plain_word(const std::string &text) {
    return !text.empty() && text.size() <= longest_word &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-.+") == std::string::npos;
}

std::string word(const JsonNode &node, std::string_view what) {
    const std::string &text = node.text();
    if (!is_plain_word(text)) node.expected(what);
    return text;
}

std::string plugin_name(const JsonNode &node) {
    const std::string &text = node.text();
    const bool is_name =
        !text.empty() && text.size() <= longest_word &&
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!is_name) node.expected("the name of a plugin (a-z, 0-9, _)");
    return text;
}

// The value of a policy key as YAML text.
std::string value_text(const JsonNode &node) {
    if (node.is_flag()) return node.flag() ? "true" : "false";
    if (node.is_number()) {
        if (!std::isfinite(node.number())) node.expected("a finite number");
        return node.raw().dump();
    }
    if (node.is_text()) return word(node, "a word (letters, digits, '_', '-', '.', '+')");
    node.expected("a number, true, false or a word");
}

class Reader {
  public:
    explicit Reader(KeelFields &out) : out_(out) {}

    void add(std::string key, std::string value) {
        out_.policy.emplace_back(std::move(key), std::move(value));
    }

    void params(const std::string &prefix, const JsonNode &node) {
        const auto members = node.members();
        if (members.size() > most_params) node.expected("at most 64 parameters");
        for (const auto &member : members) {
            const std::string name(member.first);
            if (!is_plain_word(name)) member.second.fail("the name of the parameter is not valid");
            if (!member.second.is_null()) add(prefix + name, value_text(member.second));
        }
    }

    void budget(const JsonNode &node) {
        if (node.is_number()) {
            add("budget.tokens", std::to_string(node.integer(1, most_tokens)));
            return;
        }
        if (!node.is_object()) node.expected("a number of tokens, or an object");
        node.only({"tokens", "ratio", "mib", "slack"});
        int kinds = 0;
        for (const char *key : {"tokens", "ratio", "mib", "slack"}) {
            const auto value = node.find(key);
            if (!value) continue;
            if (std::string_view(key) != "slack") ++kinds;
            add(fmt::format("budget.{}", key), value_text(*value));
        }
        if (kinds > 1) node.expected("only one of tokens, ratio and mib");
    }

    void allocator(const JsonNode &node) {
        if (node.is_text()) return add("allocator.name", plugin_name(node));
        if (!node.is_object()) node.expected("the name of an allocator, or an object");
        node.only({"name", "params"});
        if (const auto name = node.find("name")) add("allocator.name", plugin_name(*name));
        if (const auto values = node.find("params")) params("allocator.params.", *values);
    }

    void trigger(const JsonNode &node) {
        if (!node.is_object()) return add("trigger.on", trigger_list(node));
        node.only({"on", "every_n"});
        if (const auto on = node.find("on")) add("trigger.on", trigger_list(*on));
        if (const auto every = node.find("every_n"))
            add("trigger.every_n", std::to_string(every->integer(1, most_tokens)));
    }

    void protect(const JsonNode &node) {
        if (node.is_array()) return spans(node);
        if (!node.is_object()) node.expected("a list of pairs [from, to], or an object");
        node.only({"prefix", "recent", "spans"});
        for (const char *key : {"prefix", "recent"})
            if (const auto value = node.find(key))
                add(fmt::format("protect.{}", key), std::to_string(value->integer(0, most_tokens)));
        if (const auto list = node.find("spans")) spans(*list);
    }

  private:
    static std::string trigger_list(const JsonNode &node) {
        if (!node.is_array()) return word(node, "a trigger");
        std::string text;
        for (size_t i = 0; i < node.size(8); ++i)
            text += (i == 0 ? "" : ", ") + word(node.element(i), "a trigger");
        return "[" + text + "]";
    }

    void spans(const JsonNode &node) {
        for (size_t i = 0; i < node.size(most_spans); ++i) {
            const JsonNode pair = node.element(i);
            if (!pair.is_array() || pair.size() != 2) pair.expected("a pair [from, to]");
            const int64_t from = pair.element(0).integer(0, most_tokens);
            const int64_t to = pair.element(1).integer(0, most_tokens);
            if (from >= to) pair.expected("a pair [from, to] with from less than to");
            out_.protect.emplace_back(from, to);
        }
    }

    KeelFields &out_;
};

} // namespace

KeelFields read_keel_fields(const JsonNode &object) {
    if (object.is_object() && object.has("kv"))
        object.fail("kv", "the type of the cache cannot be chosen by a request; set kv in the "
                          "pipeline file of the server");
    object.only(
        {"policy", "params", "budget", "allocator", "positions", "trigger", "protect", "seed"});
    KeelFields out;
    Reader reader(out);
    if (const auto node = object.find("policy")) reader.add("name", plugin_name(*node));
    if (const auto node = object.find("params")) reader.params("params.", *node);
    if (const auto node = object.find("budget")) reader.budget(*node);
    if (const auto node = object.find("allocator")) reader.allocator(*node);
    if (const auto node = object.find("positions"))
        reader.add("positions", word(*node, "absolute, rerotated or auto"));
    if (const auto node = object.find("trigger")) reader.trigger(*node);
    if (const auto node = object.find("protect")) reader.protect(*node);
    if (const auto node = object.find("seed"))
        reader.add("seed", std::to_string(node->natural(0, INT64_MAX)));
    return out;
}

KeelFields read_keel_header(std::string_view json) {
    try {
        const JsonDocument document(json, "X-Keel-Policy", {size_t{16} << 10, 8, 4096, false}, 0);
        return read_keel_fields(document.object());
    } catch (const JsonError &e) {
        throw ApiError(400,
                       "X-Keel-Policy: " + (e.path().empty() ? "" : e.path() + ": ") + e.text(),
                       "X-Keel-Policy");
    } catch (const Error &e) {
        throw ApiError(400, e.what(), "X-Keel-Policy");
    }
}

} // namespace keel::server
