// Tests of greedy steps that are queued before their token is read (sync.ahead), on each GPU
// backend. They must give the same text as steps that wait, for KV dtypes, policies and sync
// strategies. Submissions and waits that a backend makes itself are counted.
#include "run/generate.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace keel;
using test::here;
using test::opencl;
using test::vulkan;

namespace {

pipeline::PipelineConfig config_of(const std::string &backend,
                                   const std::vector<std::string> &more) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1",
                                     "model.context=512"};
    // this also works on a processor
    if (backend == "vulkan") sets.push_back("backend.params.read_later=on");
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

// A text that may end at any token, and another text that continues the sequence.
struct Texts {
    GenerateResult first, second;
    std::vector<float> logits; // the logits after the first text
};

Texts write(Pipeline &pipeline, std::vector<int32_t> end_ids) {
    Texts texts;
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 41;
    options.ignore_end = end_ids.empty();
    options.end_ids = std::move(end_ids);
    texts.first = generate(
        session,
        pipeline.tokenizer()->encode(
            "Once upon a time there was a king who had three daughters, and the youngest of "
            "them was so fair that the sun"),
        options);
    texts.logits.assign(session.logits().begin(), session.logits().end());
    options.max_tokens = 6;
    options.ignore_end = true;
    texts.second = generate(session, pipeline.tokenizer()->encode(" And so"), options);
    return texts;
}

const std::vector<std::string> window = {"policy.plugin=sliding_window", "policy.budget.tokens=24",
                                         "policy.budget.slack=6"};

std::vector<std::string> windowed(std::vector<std::string> more) {
    more.insert(more.begin(), window.begin(), window.end());
    return more;
}

// Checks that steps ahead give the same text as steps that wait, for each of these settings.
void check_ahead(const std::string &backend, const std::vector<std::vector<std::string>> &cells) {
    for (std::vector<std::string> sets : cells) {
        INFO(backend << " " << fmt::format("{}", fmt::join(sets, " ")));
        Pipeline ahead(config_of(backend, sets));
        sets.push_back("sync.ahead=off");
        Pipeline waits(config_of(backend, sets));
        const bool collects = sets[0] == "policy.plugin=h2o";
        std::vector<int32_t> ends;
        for (int round = 0; round < 2; ++round) {
            const Texts a = write(ahead, ends), b = write(waits, ends);
            CHECK(a.first.ids == b.first.ids);
            CHECK(a.first.reason == b.first.reason);
            CHECK(a.second.ids == b.second.ids);
            CHECK(a.logits == b.logits);
            CHECK(a.second.stats.evictions == b.second.stats.evictions);
            CHECK(a.first.stats.kv_bytes == b.first.stats.kv_bytes);
            CHECK(b.first.stats.ahead_steps == 0);
            CHECK((a.first.stats.ahead_steps >= 20) == (!collects && round == 0));
            CHECK(a.first.stats.discarded_steps == (!collects && round == 1 ? 1 : 0));
            const Stream::Counters x = a.first.stats.decode_stream, y = b.first.stats.decode_stream;
            if (round == 0) CHECK(x.ops == y.ops);
            if (round == 0) CHECK(x.replays == y.replays);
            if (sets[0] == "kv.dtype=f16") { // one submission and one wait for each token
                CHECK(x.waits ==
                      // with `batched`, a backend may wait a few times by itself
                      a.first.stats.decode_tokens);
                CHECK(y.waits == b.first.stats.decode_tokens);
                CHECK(x.submits == a.first.stats.decode_tokens + a.first.stats.discarded_steps);
            }
            ends = {a.first.ids[10]};
            if (round == 0 &&
                std::count(a.first.ids.begin(), a.first.ids.begin() + 10, ends[0]) > 0)
                ends = {a.first.ids[1]};
        }
    }
}

} // namespace

TEMPLATE_TEST_CASE(
    "steps ahead give the text of steps that wait, and a text that ends between them continues", "",
    opencl, vulkan) {
    check_ahead(here<TestType>(), {{"kv.dtype=f16"}, windowed({"kv.dtype=q8_0"})});
}

TEMPLATE_TEST_CASE(
    "steps ahead write the text of steps that wait with more types, strategies and policies",
    "[grid]", opencl, vulkan) {
    std::vector<std::vector<std::string>> cells;
    for (const char *kv : {"f32", "bf16", "q4_0"})
        for (const char *sync :
             {"lazy", "{strategy: batched, ops: 10}", "{strategy: batched, ops: 50}"})
            cells.push_back({std::string("kv.dtype=") + kv, std::string("sync=") + sync});
    cells.push_back({"sync.replay=off"});
    cells.push_back({"policy.plugin=h2o", "policy.budget.tokens=24", "policy.budget.slack=4"});
    cells.push_back(windowed({"policy.positions=rerotated", "kv.dtype=q4_0"}));
    check_ahead(here<TestType>(), cells);
}

TEMPLATE_TEST_CASE("submissions and waits that the backend makes itself are counted", "", opencl,
                   vulkan) {
    // Written data goes through a staging memory that is smaller than the data.
    const std::string backend = here<TestType>();
    INFO(backend);
    const auto host = std::make_shared<HostServices>(1);
    const pipeline::PipelineConfig config = config_of(backend, {"backend.params.memory=staged"});
    const std::shared_ptr<Device> device = open_device(config.backend, host);
    const std::vector<unsigned char> bytes(40 << 20, 7);
    const BufferPtr buffer = device->allocate(bytes.size());
    Stream &stream = device->stream();
    buffer->write(0, bytes.data(), 4096);
    stream.wait();
    const Stream::Counters before = stream.counters();
    buffer->write(0, bytes.data(), bytes.size());
    stream.wait();
    const Stream::Counters used = stream.counters() - before;
    CHECK(used.writes == 1);
    // OpenCL submits and waits only while an earlier piece is still being copied, so a fast device
    // may need one of each. Vulkan always submits its staging memory before it is used again.
    CHECK(used.submits >= (backend == "vulkan" ? 2u : 1u));
    CHECK(used.waits >= 1);
    std::vector<unsigned char> back(bytes.size());
    buffer->read(0, back.data(), back.size());
    CHECK((back == bytes));
}
