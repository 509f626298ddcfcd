#pragma once

#include "server/http/message.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace keel::server {

// The keys that clients must send. Without keys, every client is accepted.
class ApiKeys {
  public:
    ApiKeys() = default;
    explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
    // One key on each line. Empty lines, and lines that begin with '#', are skipped. Throws
    // Error(input) if there is no key.
    static ApiKeys load(const std::filesystem::path &path);
    static ApiKeys parse(std::string_view text, const std::string &name);

    bool is_empty() const { return keys_.empty(); }
    // The key is in `Authorization: Bearer KEY` or in `X-Api-Key: KEY`.
    bool accepts(const HttpRequest &request) const;
    const std::vector<std::string> &all() const { return keys_; }

  private:
    std::vector<std::string> keys_;
};

// True if the texts are equal. The time does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

} // namespace keel::server
