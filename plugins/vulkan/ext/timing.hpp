// keel.timestamps/1: the times at which the device ran each op. One timestamp is written before the
// op's first command, and one after its last command.
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

    // Throws Refusal with KEEL_E_UNSUPPORTED if the queue has no clock. The first op has number 1.
    void open(const keel_host *host, const Device *device);
    // Must be called only when no queued command writes a timestamp.
    void close() noexcept;
    bool is_on() const { return pool_ != VK_NULL_HANDLE; }

    bool op_has_begun() const { return begun_; }
    // Called before the op's first command.
    void begin_op(VkCommandBuffer commands);
    // Called after the op's last command. `value` is the semaphore value of the submission that
    // will contain the commands.
    void end_op(VkCommandBuffer commands, uint64_t value);
    void skip_op() { ++ops_; } // called for an op without commands
    // Moves the times of the ops in submissions up to `done` to the arrays, at most `capacity`.
    // Returns the number of ops.
    uint32_t read(uint64_t done, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                  uint32_t capacity);
    uint64_t nanoseconds(uint64_t ticks) const;

  private:
    struct Op {
        uint64_t number, value;
    };
    // Largest number of ops whose times are kept until they are read. Further ops are not timed.
    static constexpr uint32_t kMostOps = 16384;

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    VkQueryPool pool_ = VK_NULL_HANDLE;
    uint64_t ops_ = 0;
    uint32_t next_ = 0;  // index of the next pair of queries
    bool begun_ = false; // true: the current op has at least one command
    // true: the current op gets timestamps; false: too many times were not read
    bool timed_ = false;
    std::deque<Op> done_; // timed ops; their query pairs are the last ones before next_
};

} // namespace keel_vulkan
