#include "eval/ab/records/record.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/records/record_json.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
    void operator()(std::FILE *file) const noexcept {
        if (file != nullptr) std::fclose(file);
    }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string shown(const fs::path &path) { return printable(path.string(), 300); }

// Reads the complete lines of a file, one at a time. Throws Error(input) for a line that is too
// long.
class Lines {
  public:
    explicit Lines(const fs::path &path) : name_(shown(path)), chunk_(size_t{1} << 16) {
        std::error_code error;
        if (!fs::is_regular_file(path, error))
            throw_error(ErrorKind::input, "{}: expected a results file of an experiment, found {}",
                        name_,
                        fs::exists(path, error) ? "something that is not a file" : "nothing");
        file_.reset(std::fopen(path.c_str(), "rb"));
        if (!file_) throw_error(ErrorKind::input, "{}: {}", name_, std::strerror(errno));
    }

    // Returns false at the end of the file. Characters after the last line end do not count as a
    // line.
    bool next(std::string &line) {
        line.clear();
        for (;;) {
            if (at_ == end_) {
                end_ = std::fread(chunk_.data(), 1, chunk_.size(), file_.get());
                at_ = 0;
                if (end_ == 0) {
                    if (std::ferror(file_.get()) != 0)
                        throw_error(ErrorKind::input, "{}: cannot be read", name_);
                    tail_ = !line.empty();
                    return false;
                }
            }
            const char *from = chunk_.data() + at_;
            const auto *stop = static_cast<const char *>(std::memchr(from, '\n', end_ - at_));
            const size_t count = stop == nullptr ? end_ - at_ : static_cast<size_t>(stop - from);
            if (line.size() + count > most_line_bytes)
                throw_error(ErrorKind::input, "{}:{}: the line has more than {} bytes, the limit",
                            name_, number_ + 1, most_line_bytes);
            line.append(from, count);
            at_ += count;
            if (stop == nullptr) continue;
            ++at_;
            ++number_;
            bytes_ += line.size() + 1;
            return true;
        }
    }

    const std::string &name() const noexcept { return name_; }
    // Returns the number of the line that was read last. The first line is 1.
    uint64_t number() const noexcept { return number_; }
    uint64_t bytes() const noexcept { return bytes_; } // bytes of all complete lines so far
    bool tail() const noexcept { return tail_; }

  private:
    std::string name_;
    File file_;
    std::vector<char> chunk_;
    size_t at_ = 0, end_ = 0;
    uint64_t number_ = 0, bytes_ = 0;
    bool tail_ = false;
};

Header header_of(Lines &lines) {
    std::string line;
    if (!lines.next(line))
        throw_error(ErrorKind::input,
                    "{}: expected the header of an experiment's results, found {}; the run that "
                    "wrote the file "
                    "may have ended early",
                    lines.name(), lines.tail() ? "an incomplete line" : "an empty file");
    return parse_header(line, lines.name());
}

void append_line(std::FILE *file, const fs::path &path, std::string line) {
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), file) != line.size() || std::fflush(file) != 0)
        throw_error(ErrorKind::runtime, "{}: cannot be written: {}", shown(path),
                    std::strerror(errno));
}

// Describes the difference between two experiments, as far as the headers show the difference.
std::string difference(const Header &there, const Header &wanted) {
    const std::string builds[] = {there.version + " " + there.commit,
                                  wanted.version + " " + wanted.commit};
    if (there.model != wanted.model)
        return fmt::format("made with the model {}, but this experiment uses {}",
                           printable(there.model, 200), printable(wanted.model, 200));
    if (builds[0] != builds[1])
        return fmt::format("made by Keel {}, but this is Keel {}", printable(builds[0], 100),
                           printable(builds[1], 100));
    if (there.batch != wanted.batch)
        return fmt::format("made with batch {}, but this experiment uses {}; another batch may "
                           "change the rounding",
                           there.batch, wanted.batch);
    const std::string library = other_library(there, wanted);
    if (!library.empty()) return fmt::format("made with another build of {}", library);
    return fmt::format(
        "the arms, budgets, tasks or texts differ; see the resolved.yaml in its folder: config "
        "hash {}, but here it is {}",
        printable(there.config_hash, 40), printable(wanted.config_hash, 40));
}

void check_same(const fs::path &path, const Header &there, const Header &wanted) {
    require_same_experiment(path, there, wanted);
    require_same_plan(path.string(), there, wanted);
    if (there.shard != wanted.shard || there.shards != wanted.shards)
        throw_error(
            ErrorKind::input,
            "{}: the file has shard {}/{}, but this run is shard {}/{}; use another --output for "
            "each shard",
            shown(path), there.shard, there.shards, wanted.shard, wanted.shards);
}

// In older results, the protocol "whole_prompt" has the name "query_aware".
void rename_old_protocol(Record &record) {
    std::visit(
        [](auto &one) {
            if (one.protocol == "query_aware") one.protocol = "whole_prompt";
        },
        record);
}

// Replaces the header of the file. All records stay.
void replace_header(const fs::path &path, const std::string &header) {
    const fs::path half = path.string() + ".part";
    {
        const File out(std::fopen(half.c_str(), "wb"));
        if (!out) throw_error(ErrorKind::runtime, "{}: {}", shown(half), std::strerror(errno));
        append_line(out.get(), half, header);
        Lines lines(path);
        std::string line;
        lines.next(line); // skips the old header
        while (lines.next(line)) append_line(out.get(), half, line);
    }
    std::error_code error;
    fs::rename(half, path, error);
    if (error) throw_error(ErrorKind::runtime, "{}: {}", shown(path), error.message());
}

} // namespace

ReadResult read_records(const fs::path &path,
                        const std::function<void(Record &&, uint64_t line)> &take) {
    Lines lines(path);
    ReadResult result;
    result.header = header_of(lines);
    std::string line;
    while (lines.next(line)) {
        if (++result.records > most_records)
            throw_error(ErrorKind::input, "{}:{}: the file has more than {} records, the limit",
                        lines.name(), lines.number(), most_records);
        Record record = parse_record(line, lines.name(), lines.number());
        if (result.header.old_margin) rename_old_protocol(record);
        take(std::move(record), lines.number());
    }
    result.bytes = lines.bytes();
    result.dropped_tail = lines.tail();
    return result;
}

std::string other_library(const Header &a, const Header &b) {
    for (const auto &[name, file] : b.libraries) {
        bool is_there = false, is_same = false;
        for (const auto &[other_name, other_file] : a.libraries) {
            is_there = is_there || other_name == name;
            is_same = is_same || (other_name == name && other_file == file);
        }
        if (is_there && !is_same)
            return fmt::format("{} ({})", printable(name, 60),
                               printable(file.substr(0, file.rfind(' ')), 60));
    }
    return {};
}

void require_same_experiment(const fs::path &path, const Header &there, const Header &wanted) {
    if (there.config_hash != wanted.config_hash)
        throw_error(ErrorKind::input,
                    "{}: the file has another experiment's results ({}); choose another --output, "
                    "or delete the file",
                    shown(path), difference(there, wanted));
}

Header read_header(const fs::path &path) {
    Lines lines(path);
    return header_of(lines);
}

void Writer::Close::operator()(std::FILE *file) const noexcept {
    if (file != nullptr) std::fclose(file);
}

Writer::Writer(const fs::path &path, const Header &header, Mode mode) : path_(path) {
    const std::string line = header_line(header);
    std::error_code error;
    if (fs::exists(path, error) && mode == Mode::create)
        throw_error(ErrorKind::input,
                    "{}: the file exists already; resume the run, or choose another --output",
                    shown(path));
    bool has_header = false;
    if (fs::exists(path, error)) {
        // If a run was killed while it wrote the header, the file has no complete line. A file
        // without a complete line has no results, so the file can be overwritten.
        std::string first;
        uint64_t whole = 0;
        Lines lines(path);
        if (lines.next(first)) {
            const ReadResult there = read_records(path, [](Record &&, uint64_t) {});
            check_same(path, there.header, header);
            whole = there.bytes;
            has_header = true;
            Header wanted = header;
            wanted.date = there.header.date; // the date on which the experiment began stays
            if (header_line(wanted) != header_line(there.header)) {
                replace_header(path, header_line(wanted));
                whole = whole - first.size() + header_line(wanted).size();
            }
        }
        if (whole != fs::file_size(path)) {
            fs::resize_file(path, whole, error);
            if (error) throw_error(ErrorKind::runtime, "{}: {}", shown(path), error.message());
        }
    }
    file_.reset(std::fopen(path.c_str(), "ab"));
    if (!file_) throw_error(ErrorKind::runtime, "{}: {}", shown(path), std::strerror(errno));
    if (!has_header) append_line(file_.get(), path_, line);
}

Writer::~Writer() = default;

void Writer::write(const Record &record) {
    const std::string line = record_line(record);
    const std::lock_guard lock(mutex_);
    append_line(file_.get(), path_, line);
}

} // namespace keel::ab
