// keel.timestamps/1: when the device ran each op, by timestamps that are written before its first
// and behind its last command.
#pragma once

#include "vulkan/device.hpp"

#include <deque>

namespace keel_vulkan {

class Timing {
  public:
    Timing() = default;
    ~Timing() { close(); }
    Timing(const Timing &) = delete;
    Timing &operator=(const Timing &) = delete;

    // Refuses with KEEL_E_UNSUPPORTED where the queue has no clock. Numbers from 1.
    void open(const keel_host *host, const Device *device);
    void close() noexcept; // when no command that writes a time is queued any more
    bool is_on() const { return pool_ != VK_NULL_HANDLE; }

    bool op_has_begun() const { return begun_; }
    void begin_op(VkCommandBuffer commands); // before the running op's first command
    // Behind its last one; `value`: of the submission that these commands will be.
    void end_op(VkCommandBuffer commands, uint64_t value);
    void skip_op() { ++ops_; } // it has no command
    // Moves the times of what submissions up to `done` hold to the arrays; how many.
    uint32_t read(uint64_t done, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                  uint32_t capacity);
    uint64_t nanoseconds(uint64_t ticks) const;

  private:
    struct Op {
        uint64_t number, value;
    };
    static constexpr uint32_t kMostOps = 16384; // that nobody has read; further ones are not timed

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    VkQueryPool pool_ = VK_NULL_HANDLE;
    uint64_t ops_ = 0;
    uint32_t next_ = 0;   // pair of queries
    bool begun_ = false;  // the running op has written its first time,
    bool timed_ = false;  // or would have, had there been room
    std::deque<Op> done_; // whose pairs are the last ones before next_
};

} // namespace keel_vulkan
