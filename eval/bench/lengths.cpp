// The default lengths of a benchmark, and the number of operations for a prompt length.
#include "eval/bench/bench.hpp"

#include <algorithm>

namespace keel {

int64_t bench_tokens_before(int64_t depth) { return std::max<int64_t>(depth, 1); }

double prefill_flop(const ModelConfig &m, int64_t tokens) {
    const auto d = [](int64_t value) { return static_cast<double>(value); };
    const double n = d(tokens);
    const double attention_weights = d(m.hidden_size) * (2 * d(m.q_size()) + 2 * d(m.kv_size()));
    const double ffn_weights =
        d(m.hidden_size) * (3 * d(m.active_intermediate()) + d(m.experts.count));
    const double matrices = 2 * n * d(m.layers) * (attention_weights + ffn_weights);
    const double output = 2 * d(m.hidden_size) * d(m.vocab_size);
    // Query i attends to i + 1 keys. Each key needs one product with the query. Each value needs
    // one product with its probability.
    const double attention = 4 * d(m.layers) * d(m.q_size()) * n * (n + 1) / 2;
    return matrices + output + attention;
}

std::vector<int64_t> default_prefill(int64_t context) {
    std::vector<int64_t> lengths;
    for (const int64_t n : {128, 512}) {
        if (n <= context) lengths.push_back(n);
    }
    if (lengths.empty()) lengths.push_back(std::max<int64_t>(context / 2, 1));
    return lengths;
}

std::vector<int64_t> default_depths(int64_t context, int64_t decode) {
    std::vector<int64_t> depths;
    for (const int64_t depth : {0, 512}) {
        if (bench_tokens_before(depth) + decode <= context) depths.push_back(depth);
    }
    return depths;
}

} // namespace keel
