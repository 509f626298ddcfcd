#include "eval/ab/verdicts/looks.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/json_writer.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_look_bytes = size_t{4} << 20, most_look_lines = 10'000;

std::string look_key(const Contrast &c) {
    return fmt::format("{} {} {} {} {} {} {} {}", c.a, c.a_budget, c.b, c.b_budget, c.protocol,
                       c.task, c.metric, c.length);
}

// Returns the complete lines of looks.jsonl. If the last line has no line end, a crash cut the line
// off. The report of such a look was never printed. Returns no lines if the file does not exist.
std::vector<std::string> look_lines(const fs::path &file) {
    std::vector<std::string> out;
    std::error_code error;
    if (!fs::exists(file, error)) return out;
    if (fs::file_size(file, error) > most_look_bytes)
        throw_error(ErrorKind::input, "{}: expected at most {} bytes of recorded looks",
                    printable(file.string(), 300), most_look_bytes);
    std::ifstream in(file, std::ios::binary);
    std::string line;
    while (std::getline(in, line) && !in.eof())
        if (!line.empty()) out.push_back(line);
    if (out.size() > most_look_lines)
        throw_error(ErrorKind::input, "{}: expected at most {} lines of recorded looks, found {}",
                    printable(file.string(), 300), most_look_lines, out.size());
    return out;
}

// Removes a last line that has no line end, so that the next look starts on a line of its own.
void drop_torn_line(const fs::path &file) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t end = text.rfind('\n') + 1; // 0 if there is no line end
    std::error_code error;
    // If this call fails, an error shows when lines are added.
    if (end < text.size()) fs::resize_file(file, end, error);
}

void append_looks(const fs::path &file, const std::vector<std::string> &lines) {
    drop_torn_line(file);
    std::ofstream out(file, std::ios::binary | std::ios::app);
    for (const std::string &line : lines) out << line << '\n';
    if (!out.flush())
        throw_error(ErrorKind::runtime,
                    "{}: cannot be written; a look that is not recorded may have no verdict",
                    printable(file.string(), 300));
}

} // namespace

LookBook LookBook::read(const fs::path &folder, const std::string &plan) {
    LookBook book(plan);
    const fs::path file = folder / file_name;
    constexpr JsonLimits limits{most_look_bytes, 6, 200'000};
    for (const std::string &line : look_lines(file)) {
        const JsonDocument document(line, file.string(), limits, ++book.lines_);
        const JsonNode look = document.object();
        if (look.at("plan").text() != plan) continue;
        const JsonNode items = look.at("items");
        for (size_t i = 0; i < items.size(100'000); ++i) {
            const JsonNode one = items.element(i);
            if (one.size() != 2) one.expected("a contrast and its items");
            std::set<uint64_t> &looks = book.earlier_[one.element(0).text(2000)];
            looks.insert(one.element(1).natural(1, uint64_t{1} << 53));
            if (looks.size() > most_looks + 1)
                throw_error(ErrorKind::input, "{}: expected at most {} looks at one contrast",
                            printable(file.string(), 300), most_looks + 1);
        }
    }
    return book;
}

std::shared_ptr<const SpendingLooks> LookBook::look(const Contrast &c, uint64_t planned) {
    if (c.items == 0 || planned == 0 || c.items > planned) return nullptr;
    const std::string key = look_key(c);
    const std::set<uint64_t> &before = earlier_[key];
    std::vector<uint64_t> looks(before.begin(), before.end());
    const bool is_seen = !looks.empty() && looks.back() == c.items;
    if (!is_seen) {
        const bool is_last = c.items == planned;
        const double apart =
            static_cast<double>(c.items) - static_cast<double>(looks.empty() ? 0 : looks.back());
        if (apart < 0) return nullptr;
        if (!is_last &&
            (looks.size() >= most_looks || apart < least_step * static_cast<double>(planned)))
            return nullptr;
        looks.push_back(c.items);
        has_new_ = true;
    }
    present_.emplace_back(key, c.items);
    std::vector<double> fractions;
    for (const uint64_t n : looks)
        fractions.push_back(static_cast<double>(n) / static_cast<double>(planned));
    auto &found = known_[fractions];
    if (!found) found = std::make_shared<SpendingLooks>(fractions);
    return found;
}

void LookBook::record(const fs::path &folder, const std::string &date) const {
    if (!has_new_) return;
    JsonWriter json;
    json.begin_object().member("look", lines_ + 1).member("plan", plan_).member("date", date);
    json.key("items").begin_array();
    for (const auto &[key, items] : present_)
        json.begin_array().value(key).value(items).end_array();
    json.end_array().end_object();
    append_looks(folder / file_name, {json.take()});
}

void carry_looks(const std::vector<fs::path> &shards, const fs::path &folder) {
    std::error_code error;
    std::set<std::string> folders;
    const fs::path target = folder / LookBook::file_name;
    const std::vector<std::string> there = look_lines(target);
    std::set<std::string> known(there.begin(), there.end());
    std::vector<std::string> added;
    for (const fs::path &shard : shards) {
        const fs::path place = fs::is_directory(shard, error) ? shard : shard.parent_path();
        if (!folders.insert(place.string()).second) continue;
        for (const std::string &line : look_lines(place / LookBook::file_name))
            if (known.insert(line).second) added.push_back(line);
    }
    if (!added.empty()) append_looks(target, added);
}

} // namespace keel::ab
