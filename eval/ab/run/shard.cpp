#include "eval/ab/run/shard.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;
constexpr uint32_t most_shards = 10'000;

std::optional<uint32_t> whole_number(std::string_view text) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty())
        return std::nullopt;
    return value;
}

fs::path done_file(const fs::path &folder, const Shard &shard) {
    return folder / fmt::format("shard-{}-of-{}.done", shard.index, shard.count);
}

} // namespace

FileLock::FileLock(const fs::path &path, bool wait)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    int result = -1;
    if (fd_ >= 0) {
        do result = ::flock(fd_, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
        while (result != 0 && errno == EINTR);
    }
    if (result == 0) return;
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    if (fd_ >= 0 && error == EWOULDBLOCK)
        throw_error(
            ErrorKind::usage,
            "{}: another process is writing there; wait until it ends, or choose another --output",
            path.parent_path().string());
    throw_error(ErrorKind::runtime, "{}: cannot be locked: {}", path.string(),
                std::strerror(error));
}

FileLock::~FileLock() { ::close(fd_); }

std::string Shard::file_name() const {
    return count == 1 ? std::string("results.jsonl")
                      : fmt::format("shard-{}-of-{}.jsonl", index, count);
}

Shard parse_shard(std::string_view text) {
    const size_t slash = text.find('/');
    // 0 stands for a text that is not a number, because index and count must not be 0.
    const uint32_t index = whole_number(text.substr(0, slash)).value_or(0);
    const uint32_t count =
        slash == std::string_view::npos ? 0 : whole_number(text.substr(slash + 1)).value_or(0);
    if (index < 1 || index > count || count > most_shards)
        throw_error(
            ErrorKind::usage,
            "--shard {}: expected I/N, for example 1/4, with I from 1 to N and N at most {}",
            printable(text, 40), most_shards);
    return {index, count};
}

std::optional<Shard> shard_from_environment(const std::function<const char *(const char *)> &get) {
    static constexpr const char *names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                               {"PMI_RANK", "PMI_SIZE"}};
    for (const auto &[rank_name, size_name] : names) {
        const char *rank_text = get(rank_name), *size_text = get(size_name);
        if (rank_text == nullptr || size_text == nullptr) continue;
        const auto rank = whole_number(rank_text), size = whole_number(size_text);
        if (!rank || !size || *size < 1 || *rank >= *size || *size > most_shards)
            throw_error(ErrorKind::usage,
                        "environment variables {}={} and {}={}: expected a rank below the number "
                        "of processes",
                        rank_name, printable(rank_text, 40), size_name, printable(size_text, 40));
        if (*size == 1) return std::nullopt;
        return Shard{*rank + 1, *size};
    }
    return std::nullopt;
}

void reopen_shard(const fs::path &folder, const Shard &shard) {
    const FileLock lock(folder / "merge.lock", true);
    std::error_code error;
    fs::remove(done_file(folder, shard), error);
    if (error)
        throw_error(ErrorKind::runtime, "{}: cannot be removed: {}",
                    done_file(folder, shard).string(), error.message());
}

bool finish_shard(const fs::path &folder, const Shard &shard, const std::string &key,
                  const std::function<void(const std::vector<fs::path> &shards)> &merge) {
    const FileLock lock(folder / "merge.lock", true);
    {
        std::ofstream out(done_file(folder, shard), std::ios::trunc);
        out << key << '\n';
        if (!out.flush())
            throw_error(ErrorKind::runtime, "{}: cannot be written",
                        done_file(folder, shard).string());
    }
    std::vector<fs::path> files;
    for (uint32_t i = 1; i <= shard.count; ++i) {
        const Shard one{i, shard.count};
        std::ifstream in(done_file(folder, one));
        std::string theirs;
        if (!std::getline(in, theirs) || theirs != key) return false;
        files.push_back(folder / one.file_name());
    }
    merge(files);
    return true;
}

} // namespace keel::ab
