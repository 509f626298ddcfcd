#include "run/prompt_file.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel {
namespace {

constexpr int64_t most_tokens = 16777216;         // the limit of generation.max_tokens
constexpr uint64_t most_seed = uint64_t{1} << 53; // the limit of sampling.seed
constexpr size_t most_bytes = size_t{4} << 30;    // bytes; the limit for a file of answers
// The limits are high, because answers can have log probabilities of every token.
constexpr JsonLimits line_limits{most_bytes, 16, 100'000'000};

// A line of a file, and the number of the line.
struct Line {
    const std::string &file;
    size_t number;
    std::string_view text;

    JsonDocument parse() const { return {text, printable(file, 400), line_limits, number}; }
};

// Returns the id as JSON text, so that 1 and "1" differ.
std::string id_of(const JsonNode &record) {
    const JsonNode id = record.at("id");
    if (!id.is_text() && !id.raw().is_number_integer()) id.expected("a string or an integer");
    return id.raw().dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

BatchPrompt read_prompt(const JsonNode &record) {
    record.only({"id", "prompt", "max_tokens", "seed"});
    BatchPrompt prompt;
    prompt.id = id_of(record);
    prompt.prompt = record.at("prompt").text();
    if (const auto tokens = record.find("max_tokens"))
        prompt.max_tokens = tokens->integer(1, most_tokens);
    if (const auto seed = record.find("seed")) prompt.seed = seed->natural(0, most_seed);
    return prompt;
}

// Calls visit(line) for each line that is not empty.
template <typename Visit>
void for_each_line(const std::string &file, std::string_view text, Visit &&visit) {
    size_t number = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.find_first_not_of(" \t\r") != std::string_view::npos)
            visit(Line{file, number, line});
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
    for_each_line(name, text, [&](const Line &line) {
        const JsonDocument document = line.parse();
        const JsonNode record = document.object();
        prompts.push_back(read_prompt(record));
        const auto [first, is_new] = lines.emplace(prompts.back().id, line.number);
        if (!is_new)
            record.fail(fmt::format("the id {} is already used in line {}",
                                    printable(first->first, 60), first->second));
    });
    if (prompts.empty())
        throw_error(ErrorKind::input, "{}: the file has no prompts", printable(name, 400));
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
                        "{}: expected a regular file, because a later run reads the finished "
                        "answers from it; name another file",
                        printable(file_, 400));
        if (::flock(fd_, LOCK_EX | LOCK_NB) != 0)
            throw_error(ErrorKind::input, "{}: another run is writing to the file",
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
    if (text.size() > most_bytes)
        throw_error(ErrorKind::input, "{}: more than 4 GiB; name another file for the answers",
                    printable(file_, 400));
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::pread(fd_, text.data() + at, text.size() - at, static_cast<off_t>(at));
        if (n <= 0) fail_file(file_, "read");
        at += static_cast<size_t>(n);
    }
    // A line is complete only if it ends with a newline. An incomplete last line was cut off.
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    // If the last line does not look like an answer, the file is not a file of answers, and Keel
    // must not truncate it.
    if (whole < text.size() && text[whole] != '{')
        throw_error(ErrorKind::input,
                    "{}: the file exists and holds no answers; name another file for the answers",
                    printable(file_, 400));
    std::map<std::string, const BatchPrompt *> by_id;
    for (const BatchPrompt &prompt : prompts) by_id[prompt.id] = &prompt;
    for_each_line(file_, std::string_view(text).substr(0, whole), [&](const Line &line) {
        const JsonDocument document = line.parse();
        const JsonNode record = document.object();
        std::string id = id_of(record);
        const auto asked = by_id.find(id);
        const auto prompt = record.find("prompt");
        if (!prompt || !prompt->is_text())
            record.fail("this line is not an answer, because it has no 'prompt'; name another file "
                        "for the answers");
        if (asked != by_id.end() && prompt->text() != asked->second->prompt)
            record.fail(fmt::format(
                "the id {} was answered for another prompt; name another file for the answers",
                printable(id, 60)));
        const auto settings = record.find("settings");
        if (!settings || !settings->is_text() || settings->text() != settings_)
            record.fail("this answer was generated with other settings than this command's (model, "
                        "pipeline, sampling); choose another --output, so that all answers in a "
                        "file have the same settings");
        if (asked != by_id.end() && record.has("error")) ++failed_;
        done_.push_back(std::move(id));
    });
    std::sort(done_.begin(), done_.end());
    if (whole < text.size()) {
        if (::ftruncate(fd_, static_cast<off_t>(whole)) != 0) fail_file(file_, "repaired");
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
