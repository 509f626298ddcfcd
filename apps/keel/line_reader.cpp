#include "line_reader.hpp"

#include "console.hpp"
#include "interrupt.hpp"

#include "base/error.hpp"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <fcntl.h>
#include <filesystem>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_line = size_t{1} << 20;
constexpr int history_lines = 1000;
constexpr int moment_ms = 100; // longest delay before a Ctrl-C is noticed

// Waits for input. Returns false after a Ctrl-C.
bool wait_for_input() {
    for (;;) {
        if (interrupted()) return false;
        pollfd fd{STDIN_FILENO, POLLIN, 0};
        const int ready = ::poll(&fd, 1, moment_ms);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR)
            throw_error(ErrorKind::input, "standard input: cannot read: {}", std::strerror(errno));
    }
}

// Reads one character in the locale's encoding. The editor's own function is not used, because that
// function does not return on Ctrl-C.
int read_character(EditLine *, wchar_t *out) {
    std::mbstate_t state{};
    for (;;) {
        char byte = 0;
        try {
            if (!wait_for_input()) return -1;
        } catch (...) { // an exception must not pass through the editor, which is C code
            return -1;
        }
        const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
        if (n == 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        const size_t used = std::mbrtowc(out, &byte, 1, &state);
        // the bytes so far are only a part of the character
        if (used == static_cast<size_t>(-2)) continue;
        if (used == static_cast<size_t>(-1)) {
            *out = L'?';
            return 1;
        }
        return 1;
    }
}

fs::path state_folder() {
    const char *state = std::getenv("XDG_STATE_HOME"), *home = std::getenv("HOME");
    if (state != nullptr && state[0] == '/') return fs::path(state) / "keel";
    if (home != nullptr && home[0] == '/') return fs::path(home) / ".local" / "state" / "keel";
    return {};
}

// Returns the path of the history file. Creates the file if the file does not exist. Only the user
// can read the file. Returns an empty path if the file cannot be created. The chat then has no
// history.
std::string history_file(const std::string &name) {
    const fs::path folder = state_folder();
    if (name.empty() || folder.empty()) return {};
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return {};
    fs::permissions(folder, fs::perms::owner_all, error);
    const std::string path = folder / name;
    const int fd =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return {};
    const bool is_own = ::fchmod(fd, 0600) == 0;
    ::close(fd);
    return is_own ? path : std::string();
}

// Sets the character encoding of the locale, so that users can type letters that are not ASCII.
// Does not change the format of numbers.
void choose_encoding() {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

} // namespace

struct LineReader::Editor {
    EditLine *line = nullptr;
    History *history = nullptr;
    HistEvent event{};
    std::string file, prompt;

    explicit Editor(const std::string &name) : file(history_file(name)) {
        choose_encoding();
        line = ::el_init("keel", stdin, stdout, stderr);
        history = ::history_init();
        if (line == nullptr || history == nullptr) return;
        ::history(history, &event, H_SETSIZE, history_lines);
        ::history(history, &event, H_SETUNIQUE, 1);
        if (!file.empty()) ::history(history, &event, H_LOAD, file.c_str());
        ::el_set(line, EL_CLIENTDATA, this);
        ::el_set(line, EL_PROMPT, &Editor::show_prompt);
        ::el_set(line, EL_EDITOR, "emacs");
        ::el_set(line, EL_HIST, ::history, history);
        ::el_set(line, EL_GETCFN, &read_character);
        ::el_set(line, EL_SIGNAL, 0);
        // Key bindings that users know from shells. The editor also keeps its own key bindings.
        ::el_set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
        ::el_set(line, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
        ::el_set(line, EL_BIND, "\\e[H", "ed-move-to-beg", nullptr);
        ::el_set(line, EL_BIND, "\\e[F", "ed-move-to-end", nullptr);
    }
    ~Editor() {
        if (line != nullptr) ::el_end(line);
        if (history != nullptr) ::history_end(history);
    }
    Editor(const Editor &) = delete;
    Editor &operator=(const Editor &) = delete;

    static char *show_prompt(EditLine *line) {
        Editor *self = nullptr;
        ::el_get(line, EL_CLIENTDATA, &self);
        return self->prompt.data();
    }
    void remember(const std::string &text) {
        if (text.find_first_not_of(" \t") == std::string::npos) return;
        ::history(history, &event, H_ENTER, text.c_str());
        if (!file.empty()) ::history(history, &event, H_SAVE, file.c_str());
    }
};

LineReader::LineReader(const std::string &history) {
    const char *term = std::getenv("TERM");
    const bool is_dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
    if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1 || is_dumb) return;
    auto editor = std::make_unique<Editor>(history);
    if (editor->line != nullptr && editor->history != nullptr) editor_ = std::move(editor);
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next(const std::string &prompt) {
    if (!editor_) return next_plain();
    editor_->prompt = prompt;
    int count = 0;
    const char *text = ::el_gets(editor_->line, &count);
    if (interrupted()) {
        console().out("\n"); // ends the line of the prompt
        throw Interrupted{};
    }
    if (text == nullptr || count <= 0) return std::nullopt;
    std::string line(text, static_cast<size_t>(count));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    editor_->remember(line);
    return line;
}

std::optional<std::string> LineReader::next_plain() {
    for (;;) {
        const size_t end = pending_.find('\n');
        if (end != std::string::npos || (at_end_ && !pending_.empty())) {
            std::string line = pending_.substr(0, end);
            pending_.erase(0, end == std::string::npos ? end : end + 1);
            if (line.ends_with('\r')) line.pop_back();
            return line;
        }
        if (at_end_) return std::nullopt;
        if (pending_.size() > longest_line)
            throw_error(ErrorKind::input, "standard input: a line has more than {} KiB, the limit",
                        longest_line >> 10);
        if (!wait_for_input()) throw Interrupted{};
        char piece[65536];
        const ssize_t n = ::read(STDIN_FILENO, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            throw_error(ErrorKind::input, "standard input: cannot read: {}", std::strerror(errno));
        if (n == 0) at_end_ = true;
        pending_.append(piece, static_cast<size_t>(n));
    }
}

} // namespace keel::cli
