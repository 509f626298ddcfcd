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
    upload,   // written by the host, read by the device: staging, parameters
    download, // written by the device, read by the host
    import    // the host's own memory
};

// One allocation.
struct Block {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceAddress address = 0;
    uint8_t *mapped = nullptr; // coherent; NULL: not host-visible
    uint64_t size = 0;
    MemoryUse use = MemoryUse::device;
    uint64_t taken = 0;                 // bytes in use
    std::map<uint64_t, uint64_t> holes; // free parts: offset -> bytes
};

// A part of a block. This is plain data: its holder must give it back.
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
    // Refuses with KEEL_E_OUT_OF_MEMORY, and then changes nothing. Parts are aligned to 256 bytes.
    Range take(MemoryUse use, uint64_t bytes);
    void give_back(Range &range); // an empty range is allowed
    // Makes a block from host memory. Its address and size must be multiples of the device's
    // granularity. Refuses with KEEL_E_UNSUPPORTED if the driver does not take the memory.
    Block *import(void *host, uint64_t bytes);
    void close(Block *block);

    uint64_t held() const { return held_; } // bytes of all allocations, without imports
    uint32_t allocations() const { return static_cast<uint32_t>(blocks_.size()); }
    // Free bytes according to the driver; 0: unknown.
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
