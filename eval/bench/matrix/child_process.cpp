#include "eval/bench/matrix/child_process.hpp"

#include "base/error.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace keel {
namespace {

// A running child process. The destructor waits until the process ends, so no child process keeps
// running.
class Child {
  public:
    Child(const std::filesystem::path &program, const std::vector<std::string> &arguments) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0)
            throw_error(ErrorKind::runtime, "cannot create a pipe: {}", std::strerror(errno));
        read_end_ = ends[0];
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attributes;
        ::posix_spawn_file_actions_init(&files);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
        sigset_t defaults;
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGINT);
        sigaddset(&defaults, SIGPIPE);
        ::posix_spawnattr_setsigdefault(&attributes, &defaults);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        std::string name = program.string();
        std::vector<char *> list{name.data()};
        for (const std::string &argument : arguments)
            list.push_back(const_cast<char *>(argument.c_str()));
        list.push_back(nullptr);
        const int error =
            ::posix_spawn(&pid_, name.c_str(), &files, &attributes, list.data(), environ);
        ::posix_spawn_file_actions_destroy(&files);
        ::posix_spawnattr_destroy(&attributes);
        ::close(ends[1]);
        if (error != 0) {
            ::close(read_end_);
            throw_error(ErrorKind::runtime, "{}: cannot be started: {}", name,
                        std::strerror(error));
        }
    }
    ~Child() {
        ::close(read_end_);
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            wait();
        }
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    void read_all(std::string &out, uint64_t most, const std::function<bool()> &interrupted) {
        constexpr int moment_ms = 200;
        bool told = false;
        for (;;) {
            if (interrupted() && !told) {
                told = true;
                ::kill(pid_,
                       // Ctrl-C in a terminal sends SIGINT to the child too. A SIGINT from `kill`
                       // reaches only this process, so this process sends a SIGINT to the child.
                       SIGINT);
            }
            pollfd fd{read_end_, POLLIN, 0};
            if (::poll(&fd, 1, moment_ms) <= 0) continue;
            char piece[16384];
            const ssize_t n = ::read(read_end_, piece, sizeof piece);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return;
            out.append(piece, static_cast<size_t>(n));
            if (out.size() > most)
                throw_error(ErrorKind::runtime,
                            "the child process printed more than {} bytes, the limit", most);
        }
    }

    int wait() noexcept {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = 0;
        constexpr int signalled = 128;
        return WIFEXITED(status) ? WEXITSTATUS(status) : signalled + WTERMSIG(status);
    }

  private:
    pid_t pid_ = 0;
    int read_end_ = -1;
};

} // namespace

ChildResult run_child(const std::filesystem::path &program,
                      const std::vector<std::string> &arguments,
                      const std::function<bool()> &interrupted, uint64_t most) {
    Child child(program, arguments);
    ChildResult result;
    child.read_all(result.out, most, interrupted);
    result.code = child.wait();
    return result;
}

} // namespace keel
