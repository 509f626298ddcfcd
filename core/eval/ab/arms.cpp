#include "eval/ab/arms.hpp"

#include "base/error.hpp"

#include <chrono>

namespace keel {

AbArms::AbArms(const AbExperiment &experiment, std::shared_ptr<HostServices> host, Progress progress,
               const std::filesystem::path &log_folder)
    : experiment_(experiment), host_(std::move(host)), progress_(std::move(progress)),
      log_folder_(log_folder) {}

AbArms::~AbArms() = default;

Pipeline &AbArms::pipeline(size_t run, uint64_t seed) {
    std::unique_ptr<Pipeline> &made = pipelines_[{run, seed}];
    if (made) return *made;
    const AbRun &r = experiment_.runs[run];
    pipeline::PipelineConfig config = r.config;
    if (r.seeds.size() > 1) config.policy.seed.value = static_cast<int64_t>(seed);
    if (!log_folder_.empty() && !r.keeps_all) {
        std::string name = fmt::format("evictions-{}-{}-{}.jsonl", r.arm, r.budget, seed);
        for (char &c : name)
            c = c == ':' || c == '#' ? '-' : c;
        config.policy.log.value = log_folder_ / name;
    }
    PipelineOptions options;
    options.host = host_;
    options.progress = progress_;
    options.max_logit_rows = logit_rows;
    options.quiet_fallbacks = !pipelines_.empty();
    made = std::make_unique<Pipeline>(config, options);
    return *made;
}

const Tokenizer &AbArms::tokenizer() {
    return *pipeline(0, experiment_.reference().seeds.front()).tokenizer();
}

uint64_t AbArms::full_bytes(int64_t tokens) {
    const KvShape &s = pipeline(0, experiment_.reference().seeds.front()).kv_shape();
    const auto blocks = static_cast<uint64_t>((tokens + s.block_slots - 1) / s.block_slots);
    return blocks * s.block_bytes() * s.layers * s.kv_heads;
}

AbArms::Opened AbArms::open(size_t run, uint64_t seed, std::span<const int32_t> prompt) {
    const AbRun &r = experiment_.runs[run];
    Opened opened;
    opened.session = std::make_unique<Session>(pipeline(run, seed));
    Session &session = *opened.session;
    uint64_t evicted = 0, peak = 0;
    const auto note = [&](const char *, uint64_t tokens, uint64_t) {
        const uint64_t bytes = session.cache().cache().bytes_in_use(), gone = session.cache().evicted_slots();
        opened.notes.push_back({tokens, bytes, gone - evicted});
        evicted = gone;
        peak = std::max(peak, bytes);
    };
    const auto start = std::chrono::steady_clock::now();
    try {
        if (!session.prefill(prompt, true, 1, note)) throw_error(ErrorKind::runtime, "cancelled");
    } catch (const Error &e) {
        throw Error(e.kind(), fmt::format("arm '{}' at {}: a prompt of {} tokens: {}", r.arm, r.budget,
                                          prompt.size(), e.what()));
    }
    opened.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    opened.peak_bytes = std::max(peak, session.stats().kv_peak_bytes);
    return opened;
}

} // namespace keel
