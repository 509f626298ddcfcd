// Input: changes to the content of a session file after its checksum. Each change has six bytes:
// the position (4), a byte, and how often it is repeated. If one byte remains at the end of the
// input, it cuts off the end of the file. The result is either a keel::Error, or a session that
// generates tokens or reports an error.
#include "base/error.hpp"
#include "kv/store/state_io.hpp"
#include "run/session.hpp"
#include "support/arch_miniature.hpp"
#include "support/temp_folder.hpp"

#include <cstring>

namespace {

struct Bytes final : keel::StateWriter {
    void write(const void *data, size_t bytes) override {
        const auto *p = static_cast<const std::byte *>(data);
        all.insert(all.end(), p, p + bytes);
    }
    std::vector<std::byte> all;
};

struct Bench {
    Bench() {
        keel::test::write_miniature(folder.path(), keel::test::read_miniature("llama_biases"));
        keel::PipelineOptions options;
        options.need_tokenizer = false;
        const std::vector<std::string> sets{
            "model.path=" + folder.path().string(), "backend.plugin=reference",
            "policy.plugin=sliding_window", "policy.budget.tokens=12",
            "policy.positions=rerotated"};
        pipeline =
            std::make_unique<keel::Pipeline>(keel::pipeline::config_from_overrides(sets), options);
        session = std::make_unique<keel::Session>(*pipeline);
        session->prefill(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
        for (int i = 0; i < 6; ++i) session->decode(i);
        Bytes out;
        session->save_state(out);
        good = std::move(out.all);
    }
    keel::test::TempFolder folder;
    std::unique_ptr<keel::Pipeline> pipeline;
    std::unique_ptr<keel::Session> session;
    std::vector<std::byte> good;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Bench bench;
    std::vector<std::byte> bytes = bench.good;
    for (; size >= 6; data += 6, size -= 6) {
        uint32_t where = 0;
        std::memcpy(&where, data, sizeof where);
        where %= static_cast<uint32_t>(bytes.size());
        const size_t count = std::min<size_t>(data[5], bytes.size() - where);
        std::fill_n(bytes.begin() + where, count, static_cast<std::byte>(data[4]));
    }
    if (size % 2 == 1) bytes.resize(bytes.size() * data[0] / 256);
    keel::Session &session = *bench.session;
    try {
        keel::StateReader in(bytes, "fuzz");
        session.load_state(in);
        if (session.tokens() > 0 && session.can_take(1)) {
            session.decode(5);
            (void)session.greedy();
        }
    } catch (const keel::Error &error) {
        if (error.kind() == keel::ErrorKind::internal) std::abort();
    }
    return 0;
}
