#pragma once

#include "conformance/suite.hpp"

#include <fmt/format.h>

namespace keel::conformance {

// Collects failures. Each checked condition counts as one case.
class Facts {
  public:
    explicit Facts(int max_messages) : max_messages_(max_messages) {}

    void expect(bool fact, const std::string &message) {
        ++report_.cases;
        if (fact) return;
        ++report_.failures;
        if (static_cast<int>(report_.messages.size()) < max_messages_)
            report_.messages.push_back(message);
    }
    void take(const char *op, const Report &other) {
        report_.cases += other.cases;
        report_.failures += other.failures;
        for (const std::string &message : other.messages) {
            if (static_cast<int>(report_.messages.size()) < max_messages_)
                report_.messages.push_back(fmt::format("{}: {}", op, message));
        }
    }
    const Report &report() const { return report_; }

  private:
    Report report_;
    int max_messages_;
};

// The parts of check_protocol(). Each function checks one topic.
void check_slots(Facts &facts, const keel_backend &table);
void check_plugin(Facts &facts, const keel_plugin &plugin);
void check_out_structs(Facts &facts, Side &side);
void check_hosts(Facts &facts, const Library &library, const Params &params);
void check_devices(Facts &facts, const Library &library, const Params &params, Side &side);
void check_descriptions(Facts &facts, const Library &library, const Params &params, Side &side);
void check_buffers(Facts &facts, Side &side);
void check_mapped(Facts &facts, Side &side);
void check_stream(Facts &facts, Side &side);
void check_recordings(Facts &facts, const Library &library, Side &side);
void check_times(Facts &facts, const Library &library, Side &side);
void check_later_reads(Facts &facts, const Library &library, Side &side);

// Creates a context with the host that `host` points to, and returns the status of ctx_create. If
// ctx_create succeeds, the function uses the context once and destroys it.
keel_status try_host(Facts &facts, const Library &library, const Params &params,
                     const keel_host *host, const std::string &what);

} // namespace keel::conformance
