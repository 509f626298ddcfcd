// Steps of a warm pipeline allocate nothing, whatever the architecture adds to a layer. Counts every operator new of this program.

#include "pipeline/session.hpp"
#include "support/arch_miniature.hpp"
#include "support/temp_folder.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> allocations{0};
}

// Inlined into each other, malloc and free show under new and delete, and GCC takes that for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void *operator new(size_t size) {
    ++allocations;
    if (void *memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
// Catch allocates this way; a sanitizer's own form would not match the delete below.
void *operator new(size_t size, const std::nothrow_t &) noexcept {
    ++allocations;
    return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void *memory, const std::nothrow_t &) noexcept {
    std::free(memory);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}

using namespace keel;
using namespace keel::test;

TEST_CASE("a decode step allocates no memory, with and without what Gemma adds to a layer") {
    for (const std::string name : {"llama_biases", "gemma2", "gemma3"}) {
        INFO(name);
        const TempFolder folder;
        write_miniature(folder.path(), read_miniature(name));
        PipelineOptions options;
        options.need_tokenizer = false;
        const std::vector<std::string> sets{"model.path=" + folder.path().string(), "backend.plugin=cpu",
                                            "strict=true"};
        Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        Session session(pipeline);
        const std::vector<int32_t> prompt(20, 7);
        session.prefill(prompt);
        session.decode(9);
        (void)session.logits();
        uint64_t in_steps = 0;
        for (int i = 0; i < 30; ++i) { // inside a cache block
            const uint64_t before = allocations;
            session.decode(session.greedy());
            (void)session.logits();
            in_steps += allocations - before;
        }
        CHECK(in_steps == 0);
    }
}
