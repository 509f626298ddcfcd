#include "run/prompt_file.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t most_tokens = 16777216;         // as generation.max_tokens
constexpr uint64_t most_seed = uint64_t{1} << 53; // as sampling.seed
constexpr int deepest = 16;                       // of JSON inside a line

// A line and its number, for messages.
struct Line {
    const std::string &file;
    size_t number;

    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) const {
        throw Error(ErrorKind::input, fmt::format("{}:{}: ", printable(file, 400), number) +
                                          fmt::format(format, std::forward<Args>(args)...));
    }
};

// Parses one line; deep nesting is cut before it costs stack.
Json parse_line(const Line &line, std::string_view text) {
    const auto limit = [](int depth, Json::parse_event_t, Json &) -> bool {
        if (depth > deepest) throw std::length_error("nested too deep");
        return true;
    };
    try {
        Json json = Json::parse(text, limit);
        if (!json.is_object()) line.fail("expected a JSON object, found {}", json.type_name());
        return json;
    } catch (const Json::parse_error &e) {
        line.fail("expected a JSON object on one line; this is no valid JSON from byte {} on",
                  e.byte);
    } catch (const Json::exception &e) { // a number beyond every type
        line.fail("expected a JSON object of plain values; {}", printable(e.what(), 120));
    } catch (const std::length_error &e) {
        line.fail("expected an object of plain values, found JSON that is {}", e.what());
    }
}

std::string id_of(const Line &line, const Json &json) {
    const auto id = json.find("id");
    if (id == json.end()) line.fail("expected an \"id\", found none");
    if (!id->is_string() && !id->is_number_integer())
        line.fail("expected a text or an integer as \"id\", found {}", id->type_name());
    return id->dump(-1, ' ', true, Json::error_handler_t::replace);
}

template <typename T>
std::optional<T> integer_of(const Line &line, const Json &json, const char *key, T least, T most) {
    const auto value = json.find(key);
    if (value == json.end() || value->is_null()) return std::nullopt;
    const bool fits = value->is_number_unsigned() &&
                      value->get<uint64_t>() >= static_cast<uint64_t>(least) &&
                      value->get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits) {
        line.fail("expected an integer from {} to {} as \"{}\", found {}", least, most, key,
                  printable(value->dump(-1, ' ', true, Json::error_handler_t::replace), 60));
    }
    return value->get<T>();
}

BatchPrompt read_prompt(const Line &line, std::string_view text) {
    const Json json = parse_line(line, text);
    const std::vector<std::string> known = {"id", "prompt", "max_tokens", "seed"};
    for (const auto &[key, value] : json.items()) {
        if (std::find(known.begin(), known.end(), key) == known.end())
            line.fail("unknown key \"{}\"{}; the keys are id, prompt, max_tokens, seed",
                      printable(key, 60), did_you_mean(key, known));
    }
    BatchPrompt prompt;
    prompt.id = id_of(line, json);
    const auto words = json.find("prompt");
    if (words == json.end()) line.fail("expected a \"prompt\", found none");
    if (!words->is_string())
        line.fail("expected a text as \"prompt\", found {}", words->type_name());
    prompt.prompt = words->get<std::string>();
    prompt.max_tokens = integer_of<int64_t>(line, json, "max_tokens", 1, most_tokens);
    prompt.seed = integer_of<uint64_t>(line, json, "seed", 0, most_seed);
    return prompt;
}

// Calls visit(line, text) for each line that is not empty.
template <typename Visit>
void for_each_line(const std::string &file, std::string_view text, Visit &&visit) {
    size_t number = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.find_first_not_of(" \t\r") != std::string_view::npos)
            visit(Line{file, number}, line);
    }
}

[[noreturn]] void fail_file(const std::string &file, const char *what) {
    const int reason = errno;
    throw_error(ErrorKind::input, "{}: cannot be {}: {}", printable(file, 400), what,
                std::strerror(reason));
}

} // namespace

std::vector<BatchPrompt> parse_prompts(std::string_view text, const std::string &name) {
    std::vector<BatchPrompt> prompts;
    std::map<std::string, size_t> lines;
    for_each_line(name, text, [&](const Line &line, std::string_view words) {
        prompts.push_back(read_prompt(line, words));
        const auto [first, is_new] = lines.emplace(prompts.back().id, line.number);
        if (!is_new)
            line.fail("the id {} is that of line {} already", printable(first->first, 60),
                      first->second);
    });
    if (prompts.empty())
        throw_error(ErrorKind::input, "{}: no prompts are in it", printable(name, 400));
    return prompts;
}

AnswerFile::AnswerFile(std::string file, const std::vector<BatchPrompt> &prompts,
                       std::string settings)
    : file_(std::move(file)), settings_(std::move(settings)) {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd_ < 0) fail_file(file_, "written");
    try {
        struct stat status {};
        if (::fstat(fd_, &status) != 0) fail_file(file_, "written");
        if (!S_ISREG(status.st_mode))
            throw_error(ErrorKind::input,
                        "{}: not a file; what is done could not be read from it again",
                        printable(file_, 400));
        if (::flock(fd_, LOCK_EX | LOCK_NB) != 0)
            throw_error(ErrorKind::input, "{}: another run is writing to it",
                        printable(file_, 400));
        read_done(prompts);
    } catch (...) {
        ::close(fd_);
        throw;
    }
}

AnswerFile::~AnswerFile() { ::close(fd_); }

void AnswerFile::read_done(const std::vector<BatchPrompt> &prompts) {
    std::string text(static_cast<size_t>(::lseek(fd_, 0, SEEK_END)), '\0');
    if (text.size() > (uint64_t{4} << 30))
        throw_error(ErrorKind::input, "{}: more than 4 GiB; name another file for the answers",
                    printable(file_, 400));
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::pread(fd_, text.data() + at, text.size() - at, static_cast<off_t>(at));
        if (n <= 0) fail_file(file_, "read");
        at += static_cast<size_t>(n);
    }
    // A line is there once its end is: what follows the last newline was cut off.
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    // A file that holds something else entirely is not ours to cut.
    if (whole < text.size() && text[whole] != '{')
        throw_error(ErrorKind::input,
                    "{}: not a file of answers; name another file for the answers",
                    printable(file_, 400));
    std::map<std::string, const BatchPrompt *> by_id;
    for (const BatchPrompt &prompt : prompts) by_id[prompt.id] = &prompt;
    for_each_line(
        file_, std::string_view(text).substr(0, whole),
        [&](const Line &line, std::string_view words) {
            const Json json = parse_line(line, words);
            std::string id = id_of(line, json);
            const auto asked = by_id.find(id);
            const auto prompt = json.find("prompt");
            if (prompt == json.end() || !prompt->is_string())
                line.fail("not an answer: it has no \"prompt\"; name another file for the answers");
            if (asked != by_id.end() && *prompt != asked->second->prompt)
                line.fail(
                    "the id {} was answered for another prompt; name another file for the answers",
                    printable(id, 60));
            if (json.value("settings", Json()) != settings_)
                line.fail("answered under other settings than this command's (model, pipeline, "
                          "sampling); choose "
                          "another --output, so that a file holds answers of one kind");
            if (asked != by_id.end() && json.contains("error")) ++failed_;
            done_.push_back(std::move(id));
        });
    std::sort(done_.begin(), done_.end());
    if (whole < text.size()) {
        if (::ftruncate(fd_, static_cast<off_t>(whole)) != 0) fail_file(file_, "mended");
        log().info("{}: the last line was cut off; it is written again", printable(file_, 400));
    }
}

bool AnswerFile::is_done(const BatchPrompt &prompt) const {
    return std::binary_search(done_.begin(), done_.end(), prompt.id);
}

void AnswerFile::write(const std::string &line) {
    const std::string whole = line + "\n";
    std::string_view left = whole;
    while (!left.empty()) {
        const ssize_t n = ::write(fd_, left.data(), left.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int reason = errno;
            throw_error(ErrorKind::runtime, "{}: cannot be written: {}", printable(file_, 400),
                        std::strerror(reason));
        }
        left.remove_prefix(static_cast<size_t>(n));
    }
}

} // namespace keel
