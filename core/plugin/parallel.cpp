#include "plugin/parallel.hpp"

#include <atomic>
#include <exception>
#include <mutex>

namespace keel {

ParallelFor parallel_on(HostServices &host) {
    return [&host](size_t tasks, const std::function<void(size_t)> &body) {
        struct Shared {
            const std::function<void(size_t)> &body;
            size_t tasks;
            std::atomic<size_t> next{0};
            std::mutex mutex;
            std::exception_ptr error;
        } shared{body, tasks, {}, {}, {}};
        const auto work = [](void *user, const ThreadTeam::Region &) {
            auto &s = *static_cast<Shared *>(user);
            for (size_t task = s.next++; task < s.tasks; task = s.next++) {
                try {
                    s.body(task);
                } catch (...) {
                    const std::lock_guard lock(s.mutex);
                    if (!s.error) s.error = std::current_exception();
                    s.next = s.tasks;
                }
            }
        };
        if (host.team().run(0, work, &shared) != ThreadTeam::Result::done) {
            for (size_t task = 0; task < tasks; ++task) body(task);
        }
        if (shared.error) std::rethrow_exception(shared.error);
    };
}

} // namespace keel
