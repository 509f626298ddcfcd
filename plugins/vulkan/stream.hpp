// The only command stream of the context. Ops record commands. A flush submits the recorded
// commands. If many commands are recorded, they are submitted without a flush. A timeline semaphore
// counts finished submissions: the value of a submission is the ticket of its flush.
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

    // If the device makes no progress for wait_seconds, it counts as lost. All objects that the
    // arguments point to must outlive the stream.
    void open(const keel_host *host, const Device *device, Memory *memory, KernelCache &kernels,
              uint32_t wait_seconds);
    // Waits for the device with settle() and frees everything. Reports no errors. Must be called
    // before the memory is closed.
    void close() noexcept;
    // Waits, within the time limit, until no work of this context runs. It also waits for a device
    // that counts as lost, because a slow device can still be running. Returns false if the device
    // did not answer. Then nothing that the device uses may be freed.
    bool settle() noexcept;

    // Records a dispatch, which sees the writes of all earlier commands. If `beside` is true, the
    // dispatch may run at the same time as the previous dispatch. Then it must not access data that
    // the previous dispatch writes. It also must not write data that the previous dispatch reads.
    // Parameters of up to 128 bytes are push constants. Larger parameters are stored in memory.
    void dispatch(VkPipeline pipeline, const void *params, uint32_t bytes, uint32_t x,
                  uint32_t y = 1, uint32_t z = 1, bool beside = false);
    template <class Params>
    requires std::is_class_v<Params>
    void dispatch(VkPipeline pipeline, const Params &params, uint32_t x, uint32_t y = 1,
                  uint32_t z = 1, bool beside = false) {
        dispatch(pipeline, &params, sizeof params, x, y, z, beside);
    }
    // Queues a write of n bytes. The source is copied before this function returns.
    void write(const Range &to, uint64_t offset, const void *from, uint64_t n);
    // Waits for all queued commands, then copies n bytes to host memory.
    void read(const Range &from, uint64_t offset, void *to, uint64_t n);

    uint64_t flush(); // returns the ticket
    void wait(uint64_t ticket);
    bool poll(uint64_t ticket); // returns true if the work up to the ticket is done
    void finish();              // submits the recorded commands and waits for all commands
    // Gives a range back to the memory after all commands that are queued now are done.
    void give_back_later(Range range);
    bool has_garbage() const { return !garbage_.empty(); }
    bool idle(); // returns true if nothing is recorded or running
    bool lost() const { return lost_; }

    // These functions are in ext/replay.cpp. Between start() and end_step(), dispatches are
    // recorded into the step. execute() queues the whole step.
    void start(keel_recording &step);
    void end_step();
    void execute(const keel_recording &step);
    // Frees the step's resources after its queued executions are done.
    void drop(keel_recording &step) noexcept;

    // These functions are in ext/read_later.cpp. start_read() queues a copy of n bytes and returns
    // the read's number, or 0 if too many reads are pending. finish_read() returns the bytes when
    // the copy is done, without waiting for commands that were queued later.
    uint64_t start_read(const Range &from, uint64_t offset, uint64_t n);
    // returns false if there is no read with this number
    bool finish_read(uint64_t number, void *to);
    // Counts work that the core did not request: submissions of full command buffers, and waits for
    // memory or for command buffers.
    struct Own {
        uint64_t submits = 0, waits = 0;
    };
    const Own &own() const { return own_; }

    void time_ops(bool on); // first waits for all queued commands
    void op_done();         // called after all commands of an op are recorded
    const Timing &timing() const { return timing_; }
    uint32_t read_times(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity) {
        return timing_.read(done(), number, begin_ns, end_ns, capacity);
    }

  private:
    // A command buffer, and the resources that it uses until it is done.
    struct Frame {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t value = 0;  // value of its submission; 0: the command buffer is free
        uint64_t staged = 0; // Staging::taken() at its submission
    };
    struct LaterRead {
        uint64_t number = 0; // 0: this entry is free
        uint64_t value = 0;  // value of its submission
        uint64_t bytes = 0;
    };
    struct Garbage {
        uint64_t value;
        // Either a range, or the command buffer of a recorded step. It is freed after submission
        // `value`.
        Range range;
        VkCommandBuffer commands = VK_NULL_HANDLE; // command buffer of a recorded step
    };
    // If this many commands are recorded, they are submitted without a flush.
    static constexpr uint32_t kMostRecorded = 512;
    static constexpr uint32_t kPushBytes = 128; // every device supports this size
    // After a wait that timed out, settle() waits at least this many seconds.
    static constexpr uint32_t kLastSeconds = 60;

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
    // Takes a part of the staging memory. Waits if no part of this size is free.
    Range stage(uint64_t n, uint64_t align);
    uint64_t done(); // returns the semaphore's value
    // Waits up to one second for `value`. Returns true if a submission finished in this time.
    bool wait_slice(uint64_t value, VkResult &result) noexcept;
    void wait_value(uint64_t value);
    void submit_unasked();
    void wait_unasked(uint64_t value);
    void collect();

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    Memory *memory_ = nullptr;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    keel_gpu::SlowStart *slow_start_ = nullptr; // owned by the kernel cache
    uint32_t wait_seconds_ = 0;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkSemaphore timeline_ = VK_NULL_HANDLE;
    // The number of command buffers is enough for two steps, if a submission contains two ops. With
    // fewer command buffers, the host would wait for the device.
    std::array<Frame, 64> frames_;
    uint32_t frame_ = 0;
    bool recording_ = false, after_barrier_ = false;
    bool lost_ = false; // true: all further calls fail
    // True: the device did not answer in time. It can still be running.
    bool timed_out_ = false;
    // True: the device did not answer in settle() either.
    bool gone_ = false;
    uint32_t recorded_ = 0;                        // number of commands since begin()
    uint64_t last_ = 0, submitted_ = 0, done_ = 0; // newest tickets: given, submitted, done
    VkPipeline bound_ = VK_NULL_HANDLE;
    Staging staging_;
    Range download_, mail_; // mail_: memory for the reads in later_
    std::array<LaterRead, KEEL_READ_LATER_MOST> later_;
    uint64_t reads_ = 0; // number of the newest read
    Own own_;
    std::deque<Garbage> garbage_;
    Timing timing_;
    keel_recording *step_ = nullptr; // the step that is being recorded, or NULL
};

} // namespace keel_vulkan
