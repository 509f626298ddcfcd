// The context's one stream: commands are recorded as ops come and submitted at flush, or when many
// are waiting. A timeline semaphore counts what is done: a submission's value is the ticket of the
// flush that made it.
#pragma once

#include "vulkan/ext/replay.hpp"
#include "vulkan/ext/timing.hpp"
#include "vulkan/kernel_cache.hpp"
#include "vulkan/memory.hpp"
#include "vulkan/staging.hpp"

#include <keel/ext/draft/read_later.h>

#include <array>
#include <deque>
#include <type_traits>

namespace keel_vulkan {

class Stream {
  public:
    Stream() = default;
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    // wait_seconds: after so long without any progress the device counts as lost. What is referred
    // to outlives this.
    void open(const keel_host *host, const Device *device, Memory *memory, KernelCache &kernels,
              uint32_t wait_seconds);
    // Settles and gives all back; nothing is reported. Called before the memory goes.
    void close() noexcept;
    // Waits, within limits, until nothing of ours runs, also on a device that counts as lost: one
    // that was only slow runs on. False: it did not come back, and nothing that it was given may be
    // taken from it.
    bool settle() noexcept;

    // Records a dispatch. It sees what all commands before it wrote, unless `beside`: then it runs
    // beside the one before, of which it neither reads nor overwrites anything. Params of up to 128
    // bytes are push constants, larger ones lie in memory.
    void dispatch(VkPipeline pipeline, const void *params, uint32_t bytes, uint32_t x,
                  uint32_t y = 1, uint32_t z = 1, bool beside = false);
    template <class Params>
    requires std::is_class_v<Params>
    void dispatch(VkPipeline pipeline, const Params &params, uint32_t x, uint32_t y = 1,
                  uint32_t z = 1, bool beside = false) {
        dispatch(pipeline, &params, sizeof params, x, y, z, beside);
    }
    // Queues n bytes of the host's, which are copied before the return.
    void write(const Range &to, uint64_t offset, const void *from, uint64_t n);
    // Waits for all that was queued, then copies n bytes to the host's memory.
    void read(const Range &from, uint64_t offset, void *to, uint64_t n);

    uint64_t flush(); // the ticket
    void wait(uint64_t ticket);
    bool poll(uint64_t ticket); // done?
    void finish();              // submits what is recorded and waits for all
    // A range goes back to the memory once all that is queued now is done.
    void give_back_later(Range range);
    bool has_garbage() const { return !garbage_.empty(); }
    bool idle(); // nothing is recorded or running
    bool lost() const { return lost_; }

    // ext/replay.cpp: between start and end_step dispatches go into the step instead; execute()
    // queues them all.
    void start(keel_recording &step);
    void end_step();
    void execute(const keel_recording &step);
    // gives back what it has, once what is queued of it is done
    void drop(keel_recording &step) noexcept;

    // ext/read_later.cpp: a copy of n bytes that is looked at when it is done, whatever was queued
    // behind it. The read's number; 0: there are as many as there may be.
    uint64_t start_read(const Range &from, uint64_t offset, uint64_t n);
    bool finish_read(uint64_t number, void *to); // false: there is no such read
    // What was done though nobody asked: submissions that were full, waits for memory and command
    // buffers.
    struct Own {
        uint64_t submits = 0, waits = 0;
    };
    const Own &own() const { return own_; }

    void time_ops(bool on); // waits for what is queued
    void op_done();         // an op's commands are all recorded
    const Timing &timing() const { return timing_; }
    uint32_t read_times(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity) {
        return timing_.read(done(), number, begin_ns, end_ns, capacity);
    }

  private:
    struct Frame { // a command buffer and what it needs until it is done
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t value = 0;  // of its submission; 0: free
        uint64_t staged = 0; // Staging::taken() at that submission
    };
    struct LaterRead {
        uint64_t number = 0; // 0: free
        uint64_t value = 0;  // of its submission
        uint64_t bytes = 0;
    };
    struct Garbage {
        uint64_t value;
        Range range;                               // or
        VkCommandBuffer commands = VK_NULL_HANDLE; // of a recorded step
    };
    static constexpr uint32_t kMostRecorded = 512; // then the device begins, though nobody asked
    static constexpr uint32_t kPushBytes = 128;    // what every device has
    static constexpr uint32_t kLastSeconds =
        60; // of silence at least, that a device gets when it was silent before

    void check(VkResult result, const char *what);
    void require_alive() const;
    void begin();
    void submit(uint64_t value);
    void barrier();
    static void put_barrier(VkCommandBuffer commands);
    void record(VkPipeline pipeline, const void *params, uint32_t bytes,
                const uint32_t (&groups)[3], bool beside);
    void give_back(const Garbage &garbage);
    void copy(const Range &from, uint64_t from_offset, const Range &to, uint64_t to_offset,
              uint64_t n);
    // A part of the staging memory; waits for one if all are in use.
    Range stage(uint64_t n, uint64_t align);
    uint64_t done(); // the counter's value
    // One slice of a wait for `value`; whether anything was done meanwhile.
    bool wait_slice(uint64_t value, VkResult &result) noexcept;
    void wait_value(uint64_t value);
    void submit_unasked();
    void wait_unasked(uint64_t value);
    void collect();

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    Memory *memory_ = nullptr;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    keel_gpu::SlowStart *slow_start_ = nullptr; // of the kernels
    uint32_t wait_seconds_ = 0;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkSemaphore timeline_ = VK_NULL_HANDLE;
    // As many as two steps take that are submitted in batches of two ops: with fewer the host waits
    // for the device.
    std::array<Frame, 64> frames_;
    uint32_t frame_ = 0;
    bool recording_ = false, after_barrier_ = false;
    bool lost_ = false; // no call is taken any more
    // because the device was silent: it may still run
    bool timed_out_ = false;
    // and did not come back when it was waited for again
    bool gone_ = false;
    uint32_t recorded_ = 0;                        // commands since begin
    uint64_t last_ = 0, submitted_ = 0, done_ = 0; // tickets: given, submitted, known to be done
    VkPipeline bound_ = VK_NULL_HANDLE;
    Staging staging_;
    Range download_, mail_; // mail_: of later_
    std::array<LaterRead, KEEL_READ_LATER_MOST> later_;
    uint64_t reads_ = 0; // the last number given
    Own own_;
    std::deque<Garbage> garbage_;
    Timing timing_;
    keel_recording *step_ = nullptr; // being recorded
};

} // namespace keel_vulkan
