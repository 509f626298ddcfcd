#pragma once

#include <keel/backend.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace keel::test {

// A host for tests that does not need the core. It stores the log messages and errors of plugins,
// counts their allocations, and runs parallel regions on plain threads. Each context needs its own
// TestHost. The TestHost must outlive the context.
class TestHost {
  public:
    explicit TestHost(uint32_t workers = 2) : workers_(workers) {
        table_ = {KEEL_HEADER(keel_host),
                  this,
                  log,
                  set_error,
                  alloc,
                  release,
                  worker_count,
                  parallel_region,
                  cancelled,
                  get_extension};
    }
    TestHost(const TestHost &) = delete;
    TestHost &operator=(const TestHost &) = delete;
    ~TestHost() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread &thread : team_) thread.join();
    }

    const keel_host *table() const { return &table_; }
    std::string last_error() {
        const std::lock_guard lock(text_mutex_);
        return error_;
    }
    // Returns the number of log messages that contain `part`.
    size_t logged(const std::string &part) {
        const std::lock_guard lock(text_mutex_);
        return static_cast<size_t>(
            std::count_if(logged_.begin(), logged_.end(), [&](const std::string &line) {
                return line.find(part) != std::string::npos;
            }));
    }
    // number of allocations that were not freed
    uint64_t live_allocations() const { return live_; }
    uint64_t regions() const { return regions_; }
    void cancel(bool yes) { cancelled_ = yes; }

  private:
    static TestHost &self(const keel_host *host) {
        return *static_cast<TestHost *>(host->host_data);
    }

    static void KEEL_CALL log(const keel_host *host, keel_log_level, const char *text) {
        const std::lock_guard lock(self(host).text_mutex_);
        self(host).logged_.emplace_back(text);
    }
    static void KEEL_CALL set_error(const keel_host *host, keel_status, const char *text) {
        const std::lock_guard lock(self(host).text_mutex_);
        self(host).error_ = text;
    }
    static void *KEEL_CALL alloc(const keel_host *host, uint64_t size, uint64_t align) {
        void *memory = nullptr;
        if (size > uint64_t{1} << 40)
            // Returns NULL without an attempt, because in sanitizer builds a failing allocation
            // ends the process.
            return nullptr;
        if (posix_memalign(&memory, std::max<uint64_t>(align, sizeof(void *)),
                           std::max<uint64_t>(size, 1)) != 0)
            return nullptr;
        ++self(host).live_;
        return memory;
    }
    static void KEEL_CALL release(const keel_host *host, void *memory) {
        if (memory == nullptr) return;
        --self(host).live_;
        std::free(memory);
    }
    static uint32_t KEEL_CALL worker_count(const keel_host *host) { return self(host).workers_; }
    static int32_t KEEL_CALL cancelled(const keel_host *host) {
        return self(host).cancelled_ ? 1 : 0;
    }
    static const void *KEEL_CALL get_extension(const keel_host *, const char *) { return nullptr; }

    // A barrier of n workers. The last worker that arrives starts the next round.
    struct Meeting {
        uint32_t n = 1;
        std::atomic<uint32_t> arrived = 0;
        std::atomic<uint32_t> round = 0;
    };
    static void KEEL_CALL barrier(const keel_region *region) {
        auto &meeting = *static_cast<Meeting *>(region->core);
        const uint32_t round = meeting.round.load();
        if (meeting.arrived.fetch_add(1) + 1 == meeting.n) {
            meeting.arrived = 0;
            meeting.round.fetch_add(1);
        } else {
            while (meeting.round.load() == round) std::this_thread::yield();
        }
    }

    static keel_status KEEL_CALL parallel_region(const keel_host *host, uint32_t n,
                                                 keel_region_fn fn, void *user) {
        TestHost &my = self(host);
        if (n == 0) n = my.workers_;
        if (n > 256 || inside_region()) return KEEL_E_INVALID_ARG;
        ++my.regions_;
        my.run(n, fn, user);
        return KEEL_OK;
    }
    static bool &inside_region() {
        thread_local bool inside = false;
        return inside;
    }

    void body(uint32_t worker) {
        keel_region region = {KEEL_HEADER(keel_region), worker, meeting_.n, barrier, &meeting_};
        inside_region() = true;
        fn_(user_, &region);
        inside_region() = false;
    }

    void run(uint32_t n, keel_region_fn fn, void *user) {
        {
            const std::lock_guard lock(mutex_);
            fn_ = fn;
            user_ = user;
            meeting_.n = n;
            busy_ = n - 1;
            while (team_.size() < n - 1) {
                const auto worker = static_cast<uint32_t>(team_.size() + 1);
                team_.emplace_back([this, worker, seen = task_] { serve(worker, seen); });
            }
            ++task_;
        }
        wake_.notify_all();
        body(0);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return busy_ == 0; });
    }

    void serve(uint32_t worker, uint64_t seen) {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stopping_ || task_ != seen; });
            if (stopping_) return;
            seen = task_;
            if (worker >= meeting_.n) continue;
            lock.unlock();
            body(worker);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    keel_host table_ = {};
    uint32_t workers_;
    std::atomic<uint64_t> live_ = 0;
    std::atomic<uint64_t> regions_ = 0;
    std::atomic<bool> cancelled_ = false;
    std::mutex text_mutex_;
    std::string error_;
    std::vector<std::string> logged_;

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> team_;
    Meeting meeting_;
    keel_region_fn fn_ = nullptr;
    void *user_ = nullptr;
    uint64_t task_ = 0;
    uint32_t busy_ = 0;
    bool stopping_ = false;
};

// The parameters for ctx_create: the defaults of a plugin's table, replaced by the values in
// `overrides` (key -> text). The constructor throws a std::string if a key is unknown or a value is
// invalid.
class ParamValues {
  public:
    ParamValues(const keel_plugin &plugin, const std::map<std::string, std::string> &overrides) {
        std::map<std::string, std::string> left = overrides;
        texts_.reserve(plugin.n_params);
        values_.reserve(plugin.n_params);
        for (uint32_t i = 0; i < plugin.n_params; ++i) {
            const keel_param_spec &spec = *plugin.params[i];
            const auto given = left.find(spec.key);
            const bool is_default = given == left.end();
            if (is_default && spec.default_utf8 == nullptr)
                throw std::string("parameter '") + spec.key + "' is required";
            texts_.push_back(is_default ? spec.default_utf8 : given->second);
            if (!is_default) left.erase(given);
            values_.push_back(value_of(spec, texts_.back(), is_default));
        }
        if (!left.empty()) throw "the plugin has no parameter '" + left.begin()->first + "'";
        for (const keel_param &value : values_) pointers_.push_back(&value);
    }
    const keel_param *const *data() const { return pointers_.empty() ? nullptr : pointers_.data(); }
    uint32_t size() const { return static_cast<uint32_t>(pointers_.size()); }

  private:
    static keel_param value_of(const keel_param_spec &spec, const std::string &text,
                               bool is_default) {
        keel_param value = {
            KEEL_HEADER(keel_param), spec.key, spec.type, is_default ? 1u : 0u, 0, 0, nullptr};
        switch (spec.type) {
        case KEEL_PARAM_INT:
            value.i = std::strtoll(text.c_str(), nullptr, 10);
            value.f = static_cast<double>(value.i);
            break;
        case KEEL_PARAM_FLOAT: value.f = std::strtod(text.c_str(), nullptr); break;
        case KEEL_PARAM_BOOL: value.i = text == "true" || text == "1" ? 1 : 0; break;
        default: value.s = text.c_str(); break;
        }
        return value;
    }

    // the capacity is reserved once, because values_ has pointers into this vector
    std::vector<std::string> texts_;
    std::vector<keel_param> values_;
    std::vector<const keel_param *> pointers_;
};

} // namespace keel::test
