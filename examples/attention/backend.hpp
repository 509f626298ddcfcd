// Opens a backend plugin without Keel's core: the host that the plugin calls, the values of its
// parameters, and a context with its buffers. Copy this file into your own program.
#pragma once

#include <keel/backend.h>

#include <dlfcn.h>

#include <barrier>
#include <cstdlib>
#include <latch>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// The services that a plugin gets: error texts, memory and a team of threads.
struct Host {
    keel_host table = {KEEL_HEADER(keel_host), this,        log,       set_error, alloc, release,
                       worker_count,           run_in_team, cancelled, extension};
    std::string error; // why the last call failed

    static void KEEL_CALL log(const keel_host *, keel_log_level, const char *) {}
    static void KEEL_CALL set_error(const keel_host *host, keel_status, const char *text) {
        static_cast<Host *>(host->host_data)->error = text;
    }
    static void *KEEL_CALL alloc(const keel_host *, uint64_t size, uint64_t align) {
        const uint64_t unit = align < sizeof(void *) ? sizeof(void *) : align;
        return std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
    }
    static void KEEL_CALL release(const keel_host *, void *memory) { std::free(memory); }
    static uint32_t KEEL_CALL worker_count(const keel_host *) {
        const uint32_t n = std::thread::hardware_concurrency();
        return n == 0 ? 1 : n > 256 ? 256 : n;
    }
    static int32_t KEEL_CALL cancelled(const keel_host *) { return 0; }
    static const void *KEEL_CALL extension(const keel_host *, const char *) { return nullptr; }

    // Starts a team for each region. A program that calls often keeps its team instead.
    static keel_status KEEL_CALL run_in_team(const keel_host *host, uint32_t n, keel_region_fn fn,
                                             void *user) {
        if (n == 0) n = worker_count(host);
        if (fn == nullptr || n > 256) return KEEL_E_INVALID_ARG;
        std::barrier<> meeting(n);
        std::latch ready(1); // no worker begins before all threads exist
        bool complete = false;
        const auto work = [&](uint32_t worker) {
            ready.wait();
            const keel_region region = {KEEL_HEADER(keel_region), worker, n, meet, &meeting};
            if (complete) fn(user, &region);
        };
        std::vector<std::jthread> team;
        try {
            for (uint32_t i = 1; i < n; ++i) team.emplace_back(work, i);
            complete = true;
        } catch (const std::exception &) {
        }
        ready.count_down();
        work(0);
        return complete ? KEEL_OK : KEEL_E_OUT_OF_MEMORY;
    }
    static void KEEL_CALL meet(const keel_region *region) {
        static_cast<std::barrier<> *>(region->core)->arrive_and_wait();
    }
};

// A backend's first device, opened with the default values of all parameters.
class Backend {
  public:
    // `path` names the plugin's file. Throws std::runtime_error.
    explicit Backend(const std::string &path) {
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw std::runtime_error(dlerror());
        const auto query =
            reinterpret_cast<keel_plugin_query_fn>(dlsym(library, KEEL_PLUGIN_QUERY_SYMBOL));
        const keel_plugin *plugin = query == nullptr ? nullptr : query(KEEL_ABI_VERSION);
        if (keel_adopt(&plugin_, sizeof plugin_, plugin, KEEL_PREFIX(keel_plugin, vtable)) != 0 ||
            plugin_.kind != KEEL_PLUGIN_BACKEND ||
            keel_adopt(&table_, sizeof table_, plugin_.vtable, KEEL_PREFIX(keel_backend, wait)) !=
                0)
            throw std::runtime_error(path + " is no backend of this ABI version");
        uint32_t devices = 0;
        check(table_.device_count(&host_.table, &devices));
        if (devices == 0) throw std::runtime_error(path + " finds no device: " + host_.error);
        std::vector<keel_param> values(plugin_.n_params);
        std::vector<const keel_param *> pointers;
        for (uint32_t i = 0; i < plugin_.n_params; ++i) {
            values[i] = default_of(*plugin_.params[i]);
            pointers.push_back(&values[i]);
        }
        const keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, plugin_.n_params,
                                    pointers.data()};
        check(table_.ctx_create(&host_.table, &desc, &ctx_));
    }
    ~Backend() {
        for (keel_buffer *buffer : buffers_) table_.buffer_destroy(ctx_, buffer);
        table_.ctx_destroy(ctx_);
    }
    Backend(const Backend &) = delete;
    Backend &operator=(const Backend &) = delete;

    // An extension's table, or NULL if the backend does not have it.
    const void *extension(const char *id) const {
        return plugin_.get_extension == nullptr ? nullptr : plugin_.get_extension(id);
    }
    const char *id() const { return plugin_.id; }
    keel_ctx *ctx() const { return ctx_; }
    void check(keel_status status) const {
        if (status != KEEL_OK)
            throw std::runtime_error("status " + std::to_string(status) + ": " + host_.error);
    }
    // A contiguous f32 tensor in a buffer of its own. Sizes come outermost first.
    keel_tensor tensor(const std::vector<int64_t> &shape) {
        keel_tensor t = {KEEL_HEADER(keel_tensor), nullptr, 0, KEEL_DTYPE_F32, 0, {}, {}};
        t.rank = static_cast<uint32_t>(shape.size());
        int64_t bytes = 4;
        for (size_t i = shape.size(); i-- > 0; bytes *= shape[i])
            t.shape[i] = shape[i], t.stride[i] = bytes;
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), static_cast<uint64_t>(bytes),
                                 KEEL_BUFFER_DEVICE, 0, nullptr};
        check(table_.buffer_create(ctx_, &desc, &t.buffer));
        buffers_.push_back(t.buffer);
        return t;
    }
    void write(const keel_tensor &t, const std::vector<float> &values) const {
        check(table_.buffer_write(ctx_, t.buffer, t.offset, values.data(), 4 * values.size()));
    }
    std::vector<float> read(const keel_tensor &t) const {
        std::vector<float> values(static_cast<size_t>(t.stride[0] * t.shape[0] / 4));
        check(table_.buffer_read(ctx_, t.buffer, t.offset, values.data(), 4 * values.size()));
        return values;
    }

  private:
    static keel_param default_of(const keel_param_spec &spec) {
        const char *text = spec.default_utf8;
        if (text == nullptr) throw std::runtime_error(std::string(spec.key) + " is required");
        keel_param p = {KEEL_HEADER(keel_param), spec.key, spec.type, 1, 0, 0, nullptr};
        switch (spec.type) {
        case KEEL_PARAM_INT: p.i = std::atoll(text), p.f = static_cast<double>(p.i); break;
        case KEEL_PARAM_FLOAT: p.f = std::atof(text); break;
        case KEEL_PARAM_BOOL: p.i = std::string_view(text) == "true"; break;
        default: p.s = text;
        }
        return p;
    }

    Host host_;
    keel_plugin plugin_;
    keel_backend table_;
    keel_ctx *ctx_ = nullptr;
    std::vector<keel_buffer *> buffers_;
};
