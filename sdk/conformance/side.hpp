#pragma once

#include "conformance/test_host.hpp"

#include <keel/backend.h>

#include <map>
#include <memory>
#include <string>

namespace keel::conformance {

// Thrown if the backend cannot be tested, or if the user's request is impossible. `why` is the
// message for the user.
struct Unusable {
    std::string why;
    // True: this machine does not have something that the request needs. Then the test is skipped.
    bool not_here = false;
};

// The library of a plugin. It stays loaded until the process ends. The path "reference" stands for
// the core's reference backend.
class Library {
  public:
    explicit Library(const std::string &path);
    explicit Library(const keel_plugin *plugin);
    const keel_plugin &plugin() const { return plugin_; }
    const keel_backend &table() const { return table_; }

  private:
    void adopt(const keel_plugin *plugin);
    keel_plugin plugin_ = {};
    keel_backend table_ = {};
};

using Params = std::map<std::string, std::string>;

// An open context of one backend, with its own host. Its buffers are read and written only through
// the backend's table.
class Side {
  public:
    // The library must outlive this object.
    Side(const Library &library, const Params &params, uint32_t workers = 2);
    Side(Library &&, const Params &, uint32_t = 2) = delete;
    ~Side();
    Side(const Side &) = delete;
    Side &operator=(const Side &) = delete;

    const keel_backend &table() const { return table_; }
    keel_ctx *ctx() const { return ctx_; }
    const keel_ctx_info &info() const { return info_; }
    test::TestHost &host() { return host_; }
    std::string error() { return host_.last_error(); }
    uint64_t bytes_held() const; // mem_info.ours; 0: unknown

    keel_buffer *upload(const void *data, uint64_t bytes);
    void write(keel_buffer *buffer, const void *data, uint64_t bytes);
    void read(keel_buffer *buffer, void *data, uint64_t bytes);
    void destroy(keel_buffer *buffer) { table_.buffer_destroy(ctx_, buffer); }
    // Flushes the stream and waits until all work is done.
    keel_status finish();

  private:
    void expect_ok(keel_status status, const char *what);

    test::TestHost host_;
    const keel_backend &table_;
    keel_ctx *ctx_ = nullptr;
    keel_ctx_info info_ = {};
};

// Calls the function of an op in the table. Returns KEEL_E_UNSUPPORTED if the function pointer is
// NULL.
keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx, const void *args);
bool has_op(const keel_backend &table, keel_op op);
const char *op_name(keel_op op);
keel_op op_named(const std::string &name); // returns 0 if there is no op with this name
constexpr keel_op last_op = KEEL_OP_EXPERT_MATMUL;

} // namespace keel::conformance
