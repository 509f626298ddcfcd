// Tests of the memory check of hybrids: which device is asked and for how much. Some devices do not
// report their memory, and some backends hold two caches for a time.
#include "base/display.hpp"
#include "failing_cpu.hpp"
#include "hybrid_rig.hpp"
#include "run/memory_need.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

const std::string tiny_folder = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

MemoryNeed need_of(int64_t context) {
    return memory_need(*open_model_source(tiny_folder), KEEL_DTYPE_NONE, KEEL_DTYPE_F16,
                       KEEL_DTYPE_F16, context);
}

// A device besides the processor. It reads prompts.
struct Card : FailingCpu {
    Card(uint64_t total, uint64_t free) {
        backend.device_type = KEEL_DEVICE_DISCRETE;
        backend.device_flags = 0;
        keel_mem_info info = {KEEL_HEADER(keel_mem_info)};
        info.total = total;
        info.free = free;
        backend.memory = info;
    }
};

const std::vector<std::string> on_the_card = {"hybrid.prefill=a", "hybrid.decode=b"};

} // namespace

TEST_CASE("if a card does not report its free memory, the context may fill all of its memory") {
    const int64_t trained = open_model_source(tiny_folder)->config().max_positions;
    Card card(need_of(trained / 2).total() * 8 / 7, 0);
    const auto config = pipeline::config_from_overrides(
        std::vector<std::string>{"model.path=" + tiny_folder, "hybrid.backends=" + two_cpus,
                                 on_the_card[0], on_the_card[1]});
    const Pipeline fitted(config, with(card, "a"));
    CHECK(fitted.context() < trained);
    CHECK(fitted.context() >= 256);
    card.backend.memory->total *= 16;
    CHECK(Pipeline(config, with(card, "a")).context() == trained);
    card.backend.memory->total = 0; // the configured size of the device counts then
    CHECK(Pipeline(config, with(card, "a")).context() == trained);
}

TEST_CASE("a model that does not fit a card's memory is refused before it is read, with the card's "
          "name") {
    Card card(need_of(1).weights + 65536, 0);
    CHECK_THAT(
        error_text([&] { Pipeline p(two(on_the_card), with(card, "a")); }, ErrorKind::resource),
        Contains("model.context: 512 tokens need ") &&
            Contains("', which does not tell how much is free)"));
    card.backend.memory->total = uint64_t{1} << 40;
    card.backend.memory->free = need_of(1).weights / 2;
    const std::string weights =
        error_text([&] { Pipeline p(two(on_the_card), with(card, "a")); }, ErrorKind::resource);
    CHECK_THAT(weights, Contains("needs ") && Contains(" is available (device '"));
    CHECK(card.backend.count("weight_prepare") == 0);
}

TEST_CASE("backends that share a memory and take turns get memory for two caches") {
    const auto refusal = [](const pipeline::PipelineConfig &config, uint64_t weights) {
        PipelineOptions options;
        const uint64_t available = weights * need_of(1).weights + 262144;
        options.memory = [available] { return MemoryInfo{2 * available, available, "a test"}; };
        return error_text([&] { Pipeline p(config, options); }, ErrorKind::resource);
    };
    const uint64_t one = 512 * Pipeline(one_cpu({})).kv_shape().bytes_per_token();
    CHECK_THAT(refusal(two({"hybrid.prefill=a", "hybrid.decode=b"}), 2),
               Contains("KV cache " + format_bytes(2 * one) + ","));
    CHECK_THAT(refusal(one_cpu({}), 1), Contains("KV cache " + format_bytes(one) + ","));
}
