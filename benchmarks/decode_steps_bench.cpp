// Measures the time that recorded steps (sync.replay) and steps ahead (sync.ahead) save on a GPU
// backend.
//
//   decode_steps_bench MODEL BACKEND [--rounds 41] [--tokens 60] [--set KEY=VALUE ...]
//
// A round decodes the same greedy text with and without them. Their order alternates from round to
// round, so that other load on the machine affects both. The program prints medians. For the ratio
// of each round it also prints a 95% confidence interval of the median.
#include "run/generate.hpp"
#include "run/pipeline.hpp"
#include "run/session.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

using namespace keel;

namespace {

const std::string opening =
    "Once upon a time there was a king who had three daughters, and the youngest of "
    "them was so fair that the sun";

struct Cost { // of one text
    std::vector<double> host_us, tokens_per_second;
};

// Processor time of this thread. Drivers compute on other threads.
double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void write_text(Pipeline &pipeline, int64_t tokens, Cost &cost) {
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    const double before = thread_seconds();
    const GenerateResult result = generate(session, pipeline.tokenizer()->encode(opening), options);
    cost.host_us.push_back(1e6 * (thread_seconds() - before) / static_cast<double>(tokens));
    cost.tokens_per_second.push_back(result.stats.decode_rate());
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void compare(const std::string &name, Pipeline &with, Pipeline &without, size_t rounds,
             int64_t tokens) {
    Cost a, b;
    write_text(with, tokens, a); // compiles kernels and warms up
    write_text(without, tokens, b);
    a = b = {};
    std::vector<double> ratios;
    for (size_t round = 0; round < rounds; ++round) {
        if (round % 2 == 0) write_text(with, tokens, a);
        write_text(without, tokens, b);
        if (round % 2 == 1) write_text(with, tokens, a);
        ratios.push_back(a.tokens_per_second.back() / b.tokens_per_second.back());
    }
    std::sort(ratios.begin(), ratios.end());
    // The ranks of the interval's ends, by the normal approximation of the binomial distribution.
    const auto off = static_cast<size_t>(0.98 * std::sqrt(static_cast<double>(rounds))) + 1;
    const size_t middle = rounds / 2, low = middle > off ? middle - off : 0,
                 high = std::min(middle + off, rounds - 1);
    fmt::print("{:<14} {:.1f} tokens/s with, {:.1f} without; ratio {:.3f} [{:.3f}, {:.3f}]; the "
               "host's thread "
               "{:.0f} us a token with, {:.0f} without; {} rounds\n",
               name, median(a.tokens_per_second), median(b.tokens_per_second), ratios[middle],
               ratios[low], ratios[high], median(a.host_us), median(b.host_us), rounds);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("What recorded steps and steps ahead save on a GPU backend");
    std::string model, backend;
    std::vector<std::string> sets;
    size_t rounds = 41;
    int64_t tokens = 60;
    app.add_option("model", model)->required();
    app.add_option("backend", backend)->required();
    app.add_option("--rounds", rounds)->check(CLI::Range(1, 10000));
    app.add_option("--tokens", tokens)->check(CLI::Range(2, 10000));
    app.add_option("--set", sets);
    CLI11_PARSE(app, argc, argv);
    try {
        const auto open = [&](std::vector<std::string> more) {
            more.insert(more.end(), {"model.path=" + model, "backend.plugin=" + backend,
                                     "kv.dtype=f16", "policy.plugin=none", "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"});
            more.insert(more.end(), sets.begin(), sets.end());
            return std::make_unique<Pipeline>(pipeline::config_from_overrides(more));
        };
        const auto op_by_op = open({"sync.replay=off", "sync.ahead=off"}),
                   replayed = open({"sync.ahead=off"}), ahead = open({});
        compare("recorded steps", *replayed, *op_by_op, rounds, tokens);
        compare("steps ahead", *ahead, *replayed, rounds, tokens);
    } catch (const std::exception &e) {
        fmt::print(stderr, "decode_steps_bench: {}\n", e.what());
        return 1;
    }
}
