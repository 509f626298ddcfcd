// Tests of keel chat, with pipes and with a pseudo-terminal.
#include "apps/keel_process.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <thread>

using namespace keel::test;

namespace {

// models/tiny is not a chat model, but any template can be used to test turns.
ProcessResult chat(const std::string &input, std::vector<std::string> more = {},
                   ProcessOptions options = {}) {
    std::vector<std::string> all = {"chat", tiny, "--template", "chatml", "-n", "8", "--greedy"};
    all.insert(all.end(), more.begin(), more.end());
    options.input = input;
    return run_keel(all, options);
}

size_t lines(const std::string &text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// A program on a pseudo-terminal. The class reads its output and types keys.
class Terminal {
  public:
    Terminal(std::vector<std::string> arguments, const std::string &state_folder) {
        master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
        REQUIRE(master_ >= 0);
        REQUIRE(::grantpt(master_) == 0);
        REQUIRE(::unlockpt(master_) == 0);
        const std::string name = ::ptsname(master_);
        arguments.insert(arguments.begin(), std::string(KEEL_BINARY_DIR) + "/bin/keel");
        std::vector<char *> argv;
        for (std::string &a : arguments) argv.push_back(a.data());
        argv.push_back(nullptr);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::setsid();
            const int slave = ::open(name.c_str(), O_RDWR);
            ::ioctl(slave, TIOCSCTTY, 0);
            for (int fd = 0; fd < 3; ++fd) ::dup2(slave, fd);
            ::close(slave);
            ::close(master_);
            ::setenv("TERM", "xterm", 1);
            ::setenv("XDG_STATE_HOME", state_folder.c_str(), 1);
            ::execv(argv[0], argv.data());
            ::_exit(127);
        }
    }
    ~Terminal() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(master_);
    }
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;

    void type(const std::string &keys) {
        seen_.clear();
        REQUIRE(::write(master_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
    }
    // Waits until the program has printed `text` since the last keys.
    bool wait_for(const std::string &text, int seconds = 60) {
        for (int tenth = 0; tenth < 10 * seconds; ++tenth) {
            if (contains(seen_, text)) return true;
            if (!read(100)) break;
        }
        return contains(seen_, text);
    }
    int exit_code() {
        int status = 0;
        for (int tenth = 0; tenth < 600; ++tenth) {
            if (::waitpid(pid_, &status, WNOHANG) == pid_) {
                pid_ = -1;
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
            }
            if (!read(100)) // the program has closed the terminal and is about to end
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return -1;
    }
    const std::string &seen() const { return seen_; }

  private:
    bool read(int ms) {
        pollfd fd{master_, POLLIN, 0};
        if (::poll(&fd, 1, ms) <= 0) return true;
        char piece[4096];
        const ssize_t n = ::read(master_, piece, sizeof piece);
        if (n > 0) seen_.append(piece, static_cast<size_t>(n));
        return n > 0;
    }
    int master_ = -1;
    pid_t pid_ = -1;
    std::string seen_;
};

} // namespace

TEST_CASE("A chat over a pipe answers line by line and remembers earlier turns") {
    const ProcessResult r = chat("Who was the king?\n\nOnce there was a wolf, and\n", {"-q"});
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    CHECK(lines(r.out) >= 2);
    const ProcessResult one = chat("Who was the king?\n", {"-q"});
    CHECK(r.out.starts_with(one.out));
    const ProcessResult other = chat("Once there was a wolf, and\n", {"-q"});
    CHECK_FALSE(r.out.ends_with(other.out)); // without the first turn, the answer differs
    const ProcessResult said = chat("Who was the king?", {"--stats", "--system", "Tell tales."});
    CHECK(contains(said.err, "template chatml"));
    CHECK(contains(said.err, "time to first token"));
    CHECK(contains(said.err, "1 answer, "));
}

TEST_CASE(
    "A chat has the commands reset, save, load, stats and help, and reports unknown commands") {
    const TempFolder folder;
    const std::string file = folder / "talk";
    const ProcessResult one = chat("Who was the king?\nAnd then?\n", {"-q"});
    CHECK(chat("Who was the king?\n/reset\nWho was the king?\nAnd then?\n", {"-q"})
              .out.ends_with("\n" + one.out));
    CHECK(chat("Who was the king?\n/save " + file + "\n", {"-q"}).code == 0);
    const ProcessResult loaded = chat("And then?\n", {"-q", "--load", file});
    CHECK(one.out.ends_with(loaded.out));
    CHECK(chat("/load " + file + "\nAnd then?\n", {"-q"}).out == loaded.out);
    CHECK(contains(chat("/help\n").err, "/switch"));
    CHECK(contains(chat("Hi\n/stats\n").err, "tokens so far"));
    const ProcessResult wrong =
        chat("/rest\n/load\n/load " + folder.path().string() + "/none\n/stats maybe\nHi\n", {"-q"});
    CHECK(wrong.code == 1);
    CHECK(contains(wrong.err, "did you mean '/reset'"));
    CHECK(contains(wrong.err, "/load: expected the name of a file"));
    CHECK(contains(wrong.err, "none"));
    CHECK(lines(wrong.err) == 4);
    CHECK(lines(wrong.out) >= 1); // the chat continues after the errors
    CHECK(chat("/exit\nHi\n", {"-q"}).out.empty());
    CHECK(chat("//exit\n", {"-q"}).out.size() > 1);
    CHECK(contains(failure(chat("", {"--load", tiny + "/config.json"})), "not a saved session"));
}

TEST_CASE("A chat can switch to another pipeline, which reads the whole chat") {
    const ProcessResult one = chat("Who was the king?\nAnd then?\n", {"-q"});
    // The options of the command line (-n 8 and --greedy) also apply to the other model.
    const ProcessResult r = chat("Who was the king?\n/switch " + tiny +
                                 " --template chatml kv.dtype=f32\nAnd then?\n/stats\n");
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.err, "reads the whole chat again"));
    CHECK(r.out == one.out);
    // The files name no template, and --template of the command line is only for the first model.
    const ProcessResult none = chat("Hi\n/switch /no/such/model\n/switch\n/switch " + tiny +
                                        "\n/switch " + tiny + " --template\nGo on\n",
                                    {"-q"});
    CHECK(none.code == 1);
    CHECK(lines(none.err) == 4);
    CHECK(contains(none.err, "names no chat template"));
    CHECK(contains(none.err, "the name of a chat template after --template"));
    CHECK(lines(none.out) >= 2); // the chat continues with the old model
}

TEST_CASE("A loaded chat takes its system prompt to another pipeline") {
    const TempFolder folder;
    const std::string file = folder / "talk", to = "/switch " + tiny + " --template chatml\n";
    const std::vector<std::string> rule = {"-q", "--system", "You tell tales of wolves."};
    CHECK(chat("Who was the king?\n/save " + file + "\n", rule).code == 0);
    const ProcessResult straight = chat("Who was the king?\n" + to + "And then?\n", rule);
    const ProcessResult loaded =
        chat(to + "/reset\n/load " + file + "\n" + to + "And then?\n", {"-q"});
    INFO(loaded.err);
    CHECK(loaded.code == 0);
    CHECK(straight.out.ends_with("\n" + loaded.out));
    // After a failed /load, the chat is complete, even on a model that has not read the chat yet.
    const ProcessResult kept =
        chat("Who was the king?\n" + to + "/load " + folder.path().string() + "/none\nAnd then?\n",
             rule);
    CHECK(kept.out == straight.out);
    CHECK(contains(failure(chat("", {"--load", file, "--system", "Tell tales."})),
                   "remove --system"));
}

TEST_CASE("A failed /save does not end the chat, and /save replaces only saved sessions") {
    const TempFolder folder;
    folder.write("mine", "a text of mine");
    const ProcessResult refused =
        chat("Hi\n/save " + (folder / "mine").string() + "\nGo on\n", {"-q"});
    CHECK(refused.code == 1);
    CHECK(contains(refused.err, "is not a saved session"));
    CHECK(read_file(folder / "mine") == "a text of mine");
    CHECK(lines(refused.out) >= 2);
    CHECK(contains(failure(run_keel({"run", tiny, "-p", "Hi", "--save-session", folder / "mine"})),
                   "is not a saved session"));
    // A limit on the size of files simulates a full disk.
    const std::string script =
        "trap '' XFSZ; ulimit -f 4; exec \"$0\" chat \"$1\" --template chatml -n 8 -q";
    ProcessOptions options;
    options.input = "Hi\n/save " + (folder / "talk").string() + "\nGo on\n";
    const ProcessResult full = run_process(
        {"/bin/sh", "-c", script, std::string(KEEL_BINARY_DIR) + "/bin/keel", tiny}, options);
    INFO(full.err);
    CHECK(full.code == 1);
    CHECK(contains(full.err, "cannot be written"));
    CHECK(lines(full.out) >= 2);
    CHECK_FALSE(std::filesystem::exists(folder / "talk"));
}

TEST_CASE("Errors that newcomers make are reported with what to do") {
    CHECK(contains(failure(run_keel({"chat", tiny})), "names no chat template"));
    CHECK(contains(failure(run_keel({"chat", tiny, "--template", "chatm"})),
                   "did you mean 'chatml'"));
    CHECK(contains(failure(chat("", {"--system", "a", "--system-file", "b"})),
                   "--system and --system-file"));
    const ProcessResult full =
        chat("Hi\n" + std::string(4000, 'x') + "\nHi\n", {"-q", "--context", "64"});
    CHECK(full.code == 1);
    CHECK(contains(full.err, "model.context = 64"));
    CHECK(contains(full.err, "/reset"));
}

TEST_CASE("A full context is reported with what to do, and under a policy that evicts the chat "
          "continues") {
    std::string questions;
    for (int i = 0; i < 6; ++i) questions += "And then, what did the wolf say?\n";
    const ProcessResult full = chat(questions, {"-q", "--context", "96", "-n", "40"});
    CHECK(contains(full.err, "model.context = 96"));
    CHECK(contains(full.err, "/reset"));
    const ProcessResult goes_on =
        chat(questions, {"--stats", "-n", "40", "--context", "160", "--policy", "sliding_window",
                         "--budget", "80", "--system", "You tell tales."});
    INFO(goes_on.err);
    CHECK(goes_on.code == 0);
    CHECK(contains(goes_on.err, "policy sliding_window"));
    CHECK_FALSE(contains(goes_on.err, " 0 evictions | 0.0"));
    CHECK(contains(goes_on.err, "6 answers, "));
}

TEST_CASE(
    "On a terminal there are editing and history, and Ctrl-C ends the answer or the program") {
    const TempFolder folder;
    Terminal t({"chat", tiny, "--template", "chatml", "-n", "6", "--greedy"}, folder.path());
    REQUIRE(t.wait_for("> "));
    t.type("Whx\x7fo was the king?\r"); // backspace deletes the x
    REQUIRE(t.wait_for("\n> "));
    t.type("\x1b[A"); // the key "up" shows the previous line
    REQUIRE(t.wait_for("Who was the king?"));
    t.type("\r");
    REQUIRE(t.wait_for("\n> "));
    t.type("\x03");
    CHECK(t.exit_code() == 130);
    const auto history = folder / "keel/chat_history";
    REQUIRE(std::filesystem::exists(history));
    CHECK((std::filesystem::status(history).permissions() & std::filesystem::perms::all) ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK(contains(read_file(history), "king"));

    // This run is slow enough to be interrupted.
    Terminal second(
        {"chat", tiny, "--template", "zephyr", "-n", "1500", "--greedy", "--backend", "reference"},
        folder.path());
    REQUIRE(second.wait_for("> "));
    second.type("Tell me a long tale of a king\r");
    REQUIRE(second.wait_for("\n"));
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    second.type("\x03");
    REQUIRE(second.wait_for("interrupted")); // keys before the prompt can be lost
    REQUIRE(second.wait_for("> "));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    second.type("\x04");
    CHECK(second.exit_code() == 0);
}

TEST_CASE("A chat continues on another backend of its hybrid, with its cache") {
    TempFolder folder;
    const std::string file = (folder.path() / "h.yaml").string();
    std::ofstream(file) << "model: " << tiny
                        << "\nhybrid:\n  backends: {a: {plugin: cpu, params: {threads: 1}}, b: "
                           "{plugin: cpu, params: "
                           "{threads: 1}}}\n  switch: {on: command, warmup_tokens: 3}\n";
    const auto talk = [&](const std::string &input, const std::vector<std::string> &more = {}) {
        std::vector<std::string> all = {"chat", file, "--template", "chatml",
                                        "-n",   "8",  "--greedy"};
        all.insert(all.end(), more.begin(), more.end());
        ProcessOptions options;
        options.input = input;
        return run_keel(all, options);
    };
    const ProcessResult stayed = talk("One\nTwo\nThree\n"),
                        went = talk("One\n/switch b\nTwo\nThree\n/switch b\n");
    CHECK(stayed.code == 0);
    CHECK(went.code == 0);
    CHECK(went.out == stayed.out);
    CHECK(went.err.find("switch: a -> b after ") != std::string::npos);
    CHECK(went.err.find("(/switch)") != std::string::npos);
    CHECK(went.err.find("3 warm-up tokens") != std::string::npos);
    CHECK(went.err.find("the chat already runs on b") != std::string::npos);
    const ProcessResult cold =
        talk("One\n/switch b\nTwo\nThree\n", {"--set", "hybrid.switch.warmup_tokens=0"});
    CHECK(cold.out == stayed.out);
    const ProcessResult refused =
        talk("/switch b\n", {"--set", "hybrid.prefill=b", "--set", "hybrid.switch=null"});
    CHECK(refused.code == 1);
    CHECK(refused.err.find("hybrid.switch.on does not list the trigger command") !=
          std::string::npos);
    const ProcessResult unknown = talk("/switch c\n");
    CHECK(unknown.code == 1);
    CHECK(unknown.err.find("'c' is neither a backend of this pipeline (a, b)") !=
          std::string::npos);
}
