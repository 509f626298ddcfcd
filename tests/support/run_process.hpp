#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace keel::test {

struct ProcessOptions {
    std::optional<std::string> input; // content of standard input; nullopt: /dev/null
    // true: the pipe is never closed, as if another program had started this one
    bool input_stays_open = false;
    // file for standard output, e.g. /dev/full; empty: the output is captured
    std::string output_file;
    bool close_output = false;            // true: standard output is closed
    std::string folder;                   // working directory; empty: the test's own
    std::vector<std::string> environment; // "NAME=VALUE", in addition to the test's own variables
    std::function<void(pid_t, const std::string &out)>
        on_output; // called after each piece of standard output
    std::chrono::seconds timeout{120};
};

struct ProcessResult {
    int code = -1; // exit code; -1: a signal ended the process
    int signal = 0;
    bool timed_out = false;
    std::string out, err;
    uint64_t peak_bytes = 0; // largest resident memory
};

namespace process_detail {

inline void check(int error, const char *what) {
    if (error != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
}

struct Pipe {
    int ends[2] = {-1, -1};
    Pipe() {
        if (::pipe2(ends, O_CLOEXEC) != 0) check(errno, "pipe");
    }
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    void close_end(int i) {
        if (ends[i] >= 0) ::close(ends[i]);
        ends[i] = -1;
    }
};

// Reads one piece. Returns false at the end.
inline bool read_piece(Pipe &pipe, std::string &to) {
    char piece[4096];
    const ssize_t n = ::read(pipe.ends[0], piece, sizeof piece);
    if (n > 0) to.append(piece, static_cast<size_t>(n));
    if (n > 0 || (n < 0 && errno == EINTR)) return true;
    pipe.close_end(0);
    return false;
}

inline pid_t spawn(const std::vector<std::string> &command, const ProcessOptions &o, Pipe &in,
                   Pipe &out, Pipe &err) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    check(::posix_spawn_file_actions_init(&files), "posix_spawn_file_actions_init");
    check(::posix_spawnattr_init(&attributes), "posix_spawnattr_init");
    if (o.input || o.input_stays_open) {
        ::posix_spawn_file_actions_adddup2(&files, in.ends[0], STDIN_FILENO);
    } else {
        ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    if (o.output_file.empty()) {
        ::posix_spawn_file_actions_adddup2(&files, out.ends[1], STDOUT_FILENO);
    } else {
        ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, o.output_file.c_str(),
                                           O_WRONLY | O_CREAT, 0666);
    }
    ::posix_spawn_file_actions_adddup2(&files, err.ends[1], STDERR_FILENO);
    if (!o.folder.empty()) ::posix_spawn_file_actions_addchdir_np(&files, o.folder.c_str());
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGPIPE);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

    std::vector<char *> arguments, environment;
    for (const std::string &argument : command)
        arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    // if a name occurs twice, the first one counts
    for (const std::string &variable : o.environment)
        environment.push_back(const_cast<char *>(variable.c_str()));
    for (char **variable = environ; *variable != nullptr; ++variable)
        environment.push_back(*variable);
    environment.push_back(nullptr);
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, command.front().c_str(), &files, &attributes,
                                    arguments.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
    check(error, command.front().c_str());
    return pid;
}

} // namespace process_detail

// Runs a program until it ends and returns its output. The input must fit into a pipe (64 KiB).
inline ProcessResult run_process(const std::vector<std::string> &command,
                                 const ProcessOptions &o = {}) {
    using namespace process_detail;
    using Clock = std::chrono::steady_clock;
    Pipe in, out, err;
    const pid_t pid = spawn(command, o, in, out, err);
    in.close_end(0);
    out.close_end(1);
    err.close_end(1);
    if (o.close_output) out.close_end(0);
    if (o.input && ::write(in.ends[1], o.input->data(), o.input->size()) !=
                       static_cast<ssize_t>(o.input->size()))
        check(errno, "write");
    if (!o.input_stays_open) in.close_end(1);

    ProcessResult result;
    const auto end = Clock::now() + o.timeout;
    while (out.ends[0] >= 0 || err.ends[0] >= 0) {
        pollfd fds[2] = {{out.ends[0], POLLIN, 0},
                         {err.ends[0], POLLIN, 0}}; // poll ignores negative descriptors
        const int ready = ::poll(fds, 2, 100);
        if (Clock::now() > end && !result.timed_out) {
            result.timed_out = true;
            ::kill(pid, SIGKILL);
        }
        if (ready <= 0) continue;
        if (fds[0].revents != 0 && read_piece(out, result.out) && o.on_output)
            o.on_output(pid, result.out);
        if (fds[1].revents != 0) read_piece(err, result.err);
    }
    int status = 0;
    rusage usage{};
    while (::wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    result.peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    return result;
}

} // namespace keel::test
