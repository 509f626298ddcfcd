// Device memory: a few large allocations that are divided among buffers. Each allocation is one
// VkBuffer with one VkDeviceMemory. So a buffer is only an address and a length, and needs no
// Vulkan object of its own.
#pragma once

#include "vulkan/device.hpp"

#include <map>
#include <memory>

namespace keel_vulkan {

enum class MemoryUse {
    device,   // fastest for the device; also mapped if host and device share memory
    upload,   // written by the host and read by the device: staging and parameters
    download, // written by the device and read by the host
    import    // the host's own memory
};

// One allocation of device memory.
struct Block {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceAddress address = 0;
    // address on the host, coherent; NULL: the host cannot access the block
    uint8_t *mapped = nullptr;
    uint64_t size = 0;
    MemoryUse use = MemoryUse::device;
    uint64_t taken = 0;                 // number of bytes in use
    std::map<uint64_t, uint64_t> holes; // the free parts: offset -> number of bytes
};

// A part of a block. The struct has no destructor: its holder must give the part back.
struct Range {
    Block *block = nullptr;
    uint64_t offset = 0, size = 0; // in bytes; size is rounded up

    VkDeviceAddress address() const { return block->address + offset; }
    uint8_t *mapped() const { return block->mapped == nullptr ? nullptr : block->mapped + offset; }
};

class Memory {
  public:
    Memory() = default;
    ~Memory();
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    void open(const keel_host *host, const Device *device);
    // Throws Refusal with KEEL_E_OUT_OF_MEMORY if there is no memory. After this error nothing has
    // changed. Parts are aligned to 256 bytes.
    Range take(MemoryUse use, uint64_t bytes);
    void give_back(Range &range); // the range may be empty
    // Makes a block from the host's memory. Address and size must be multiples of the device's
    // import granularity. Throws Refusal with KEEL_E_UNSUPPORTED if the driver does not accept the
    // memory.
    Block *import(void *host, uint64_t bytes);
    void close(Block *block);

    uint64_t held() const { return held_; } // bytes of all allocations, without imported memory
    uint32_t allocations() const { return static_cast<uint32_t>(blocks_.size()); }
    // Returns the number of free bytes that the driver reports, or 0 if it reports no number.
    uint64_t free_bytes() const;

    static constexpr uint64_t kAlign = 256;

  private:
    Block *make_block(MemoryUse use, uint64_t bytes, void *import);
    void bind(Block &block, void *import);
    uint32_t type_for(MemoryUse use, uint32_t allowed) const;
    static bool take_hole(Block &block, uint64_t bytes, Range &out);

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    VkPhysicalDeviceMemoryProperties types_ = {};
    std::vector<std::unique_ptr<Block>> blocks_;
    uint64_t held_ = 0;
};

} // namespace keel_vulkan
