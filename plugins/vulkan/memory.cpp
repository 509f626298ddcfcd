#include "vulkan/memory.hpp"

#include "vulkan/context.hpp"

#include <algorithm>
#include <stdio.h>

namespace keel_vulkan {
namespace {

constexpr uint64_t kBlockBytes = 64u << 20;

constexpr uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

} // namespace

Memory::~Memory() {
    while (!blocks_.empty()) close(blocks_.back().get());
}

void Memory::open(const keel_host *host, const Device *device) {
    host_ = host;
    device_ = device;
    vkGetPhysicalDeviceMemoryProperties(device->physical(), &types_);
}

// Returns the allowed memory type that fits the use best, or UINT32_MAX if none fits.
uint32_t Memory::type_for(MemoryUse use, uint32_t allowed) const {
    constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                    visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                    cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const bool unified = device_->facts().unified;
    uint32_t best = UINT32_MAX;
    int best_points = -1;
    for (uint32_t i = 0; i < types_.memoryTypeCount; ++i) {
        if ((allowed >> i & 1) == 0) continue;
        const VkMemoryPropertyFlags flags = types_.memoryTypes[i].propertyFlags;
        const bool is_visible = (flags & visible) == visible;
        if ((flags & ~(local | visible | cached)) != 0)
            continue; // lazily allocated, protected and device-uncached memory is not used
        if ((use == MemoryUse::upload || use == MemoryUse::download) && !is_visible) continue;
        int points = 0;
        switch (use) {
        case MemoryUse::device:
        case MemoryUse::import:
            points = ((flags & local) != 0 ? 8 : 0) + (is_visible == unified ? 4 : 0) +
                     (unified && (flags & cached) != 0 ? 2 : 0);
            break;
        case MemoryUse::
            // Every workgroup reads parameters. So for `upload`, device memory that the host can
            // write is best.
            upload:
            points = (flags & local) != 0 ? 8 : 0;
            break;
        case MemoryUse::download: points = (flags & cached) != 0 ? 8 : 0; break;
        }
        if (points > best_points) best_points = points, best = i;
    }
    return best;
}

// Allocates the memory of the block and gets its addresses. If this function throws, the caller
// destroys the objects that were already created.
void Memory::bind(Block &block, void *import) {
    const VkDevice device = device_->handle();
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, block.buffer, &needs);
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkImportMemoryHostPointerInfoEXT pointer = {
        VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size, 0};
    uint32_t allowed = needs.memoryTypeBits;
    if (import != nullptr) {
        VkMemoryHostPointerPropertiesEXT host = {
            VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
        constexpr auto type = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
        const VkResult result = device_->host_pointer_properties(device, type, import, &host);
        allowed &= result == VK_SUCCESS && needs.size <= block.size ? host.memoryTypeBits : 0;
        pointer.handleType = type;
        pointer.pHostPointer = import;
        flags.pNext = &pointer;
        info.allocationSize = block.size;
    }
    info.memoryTypeIndex = type_for(block.use, allowed);
    if (info.memoryTypeIndex == UINT32_MAX)
        refuse(host_, KEEL_E_UNSUPPORTED, "the device has no type of memory for %s",
               import != nullptr ? "this host memory" : "this kind of buffer");
    const VkResult result = vkAllocateMemory(device, &info, nullptr, &block.memory);
    if (import != nullptr && result == VK_ERROR_INVALID_EXTERNAL_HANDLE)
        refuse(host_, KEEL_E_UNSUPPORTED, "the driver refuses to import this host memory");
    char what[64];
    snprintf(what, sizeof what, "vkAllocateMemory of %llu bytes",
             static_cast<unsigned long long>(info.allocationSize));
    check(host_, result, what);
    check(host_, vkBindBufferMemory(device, block.buffer, block.memory, 0), "vkBindBufferMemory");
    const bool visible = (types_.memoryTypes[info.memoryTypeIndex].propertyFlags &
                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    if (block.use == MemoryUse::upload || block.use == MemoryUse::download ||
        (block.use == MemoryUse::device && device_->facts().unified && visible)) {
        void *at = nullptr;
        check(host_, vkMapMemory(device, block.memory, 0, VK_WHOLE_SIZE, 0, &at), "vkMapMemory");
        block.mapped = static_cast<uint8_t *>(at);
    }
    VkBufferDeviceAddressInfo where = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr,
                                       block.buffer};
    block.address = vkGetBufferDeviceAddress(device, &where);
}

Block *Memory::make_block(MemoryUse use, uint64_t bytes, void *import) {
    const DeviceFacts &facts = device_->facts();
    if (facts.max_allocation != 0 && bytes > facts.max_allocation)
        refuse(host_, KEEL_E_OUT_OF_MEMORY,
               "an allocation of %llu bytes is too large; the device allows at most %llu bytes "
               "(maxMemoryAllocationSize)",
               static_cast<unsigned long long>(bytes),
               static_cast<unsigned long long>(facts.max_allocation));
    if (blocks_.size() >= facts.properties.limits.maxMemoryAllocationCount)
        refuse(
            host_, KEEL_E_OUT_OF_MEMORY,
            "the %u allocations that the device allows are all in use (maxMemoryAllocationCount)",
            facts.properties.limits.maxMemoryAllocationCount);
    auto block = std::make_unique<Block>();
    block->size = bytes;
    block->use = use;
    blocks_.reserve(blocks_.size() + 1);
    VkExternalMemoryBufferCreateInfo external = {
        VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkBufferCreateInfo buffer = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    buffer.pNext = import != nullptr ? &external : nullptr;
    buffer.size = bytes;
    buffer.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                   VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    check(host_, vkCreateBuffer(device_->handle(), &buffer, nullptr, &block->buffer),
          "vkCreateBuffer");
    try {
        bind(*block, import);
    } catch (...) {
        vkDestroyBuffer(device_->handle(), block->buffer, nullptr);
        vkFreeMemory(device_->handle(), block->memory, nullptr);
        throw;
    }
    if (use != MemoryUse::import) held_ += bytes;
    blocks_.push_back(std::move(block));
    return blocks_.back().get();
}

bool Memory::take_hole(Block &block, uint64_t bytes, Range &out) {
    for (auto hole = block.holes.begin(); hole != block.holes.end(); ++hole) {
        if (hole->second < bytes) continue;
        const auto [offset, size] = *hole;
        // emplace can throw, so it is called before anything changes.
        if (size > bytes) block.holes.emplace(offset + bytes, size - bytes);
        block.holes.erase(offset);
        block.taken += bytes;
        out = {&block, offset, bytes};
        return true;
    }
    return false;
}

Range Memory::take(MemoryUse use, uint64_t bytes) {
    if (bytes > UINT64_MAX / 2)
        refuse(host_, KEEL_E_OUT_OF_MEMORY, "an allocation of %llu bytes is too large",
               static_cast<unsigned long long>(bytes));
    bytes = std::max(round_up(bytes, kAlign), kAlign);
    Range out;
    const bool small = bytes <= kBlockBytes / 2;
    if (small) {
        for (const auto &block : blocks_)
            if (block->use == use && take_hole(*block, bytes, out)) return out;
    }
    const uint64_t limit = device_->facts().max_allocation;
    Block *block = make_block(
        use, small && (limit == 0 || limit >= kBlockBytes) ? kBlockBytes : bytes, nullptr);
    block->holes.emplace(0, block->size);
    take_hole(*block, bytes, out);
    return out;
}

void Memory::give_back(Range &range) {
    Block *block = range.block;
    if (block == nullptr) return;
    block->taken -= range.size;
    uint64_t begin = range.offset, end = range.offset + range.size;
    range = {};
    auto after = block->holes.lower_bound(begin);
    if (after != block->holes.end() && after->first == end) {
        end += after->second;
        after = block->holes.erase(after);
    }
    if (after != block->holes.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == begin) {
            begin = before->first;
            block->holes.erase(before);
        }
    }
    block->holes.emplace(begin, end - begin);
    if (block->taken != 0) return;
    // One empty block of the normal size is kept. So a buffer that is often created and destroyed
    // does not cost an allocation each time.
    const bool another = std::any_of(blocks_.begin(), blocks_.end(), [&](const auto &b) {
        return b.get() != block && b->use == block->use && b->taken == 0;
    });
    if (another || block->size != kBlockBytes) close(block);
}

Block *Memory::import(void *host, uint64_t bytes) {
    const uint64_t align = device_->facts().import_align;
    if (!device_->facts().imports)
        refuse(host_, KEEL_E_UNSUPPORTED,
               "the device cannot import host memory (it lacks VK_EXT_external_memory_host)");
    if (host == nullptr || reinterpret_cast<uintptr_t>(host) % align != 0 || bytes % align != 0)
        refuse(host_, KEEL_E_UNSUPPORTED,
               "the device imports host memory only at addresses and sizes that are multiples of "
               "%llu bytes",
               static_cast<unsigned long long>(align));
    return make_block(MemoryUse::import, bytes, host);
}

void Memory::close(Block *block) {
    const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                    [&](const auto &b) { return b.get() == block; });
    if (found == blocks_.end()) return;
    vkDestroyBuffer(device_->handle(), block->buffer, nullptr);
    vkFreeMemory(device_->handle(), block->memory, nullptr);
    if (block->use != MemoryUse::import) held_ -= block->size;
    blocks_.erase(found);
}

uint64_t Memory::free_bytes() const {
    if (!device_->facts().memory_budget) return 0;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, &budget, {}};
    vkGetPhysicalDeviceMemoryProperties2(device_->physical(), &memory);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < types_.memoryHeapCount; ++i) {
        if ((types_.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
        if (budget.heapBudget[i] > budget.heapUsage[i])
            sum += budget.heapBudget[i] - budget.heapUsage[i];
    }
    return sum;
}

} // namespace keel_vulkan
