// Computes causal attention on tensors of its own, and its gradients, with a backend plugin of
// Keel. Then it compares the gradients with finite differences.
#include "backend.hpp"

#include <keel/ext/draft/attention_dense.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace {

constexpr int64_t batch = 2, rows = 10, heads = 4, kv_heads = 2, head_dim = 64;

std::vector<float> waves(size_t n, double step) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i)
        values[i] = static_cast<float>(std::sin(step * static_cast<double>(i)));
    return values;
}

int run(Backend &backend) {
    const auto *dense =
        static_cast<const keel_dense *>(backend.extension(KEEL_EXT_ATTENTION_DENSE));
    if (dense == nullptr || dense->backward == nullptr)
        throw std::runtime_error(std::string(backend.id()) +
                                 " does not support dense attention with gradients");
    const std::vector<int64_t> wide = {batch, rows, heads, head_dim},
                               narrow = {batch, rows, kv_heads, head_dim};
    const size_t q_size = batch * rows * heads * head_dim,
                 k_size = batch * rows * kv_heads * head_dim;
    keel_tensor q = backend.tensor(wide), k = backend.tensor(narrow), v = backend.tensor(narrow),
                out = backend.tensor(wide), lse = backend.tensor({batch, heads, rows}),
                d_out = backend.tensor(wide), d_q = backend.tensor(wide),
                d_k = backend.tensor(narrow), d_v = backend.tensor(narrow);
    const std::vector<float> slopes = waves(q_size, 0.3); // the loss is sum(out * slopes)
    backend.write(q, waves(q_size, 0.7)), backend.write(k, waves(k_size, 1.1));
    backend.write(v, waves(k_size, 1.9)), backend.write(d_out, slopes);

    keel_dense_attention a = {};
    a.h = KEEL_HEADER(keel_dense_attention);
    a.features = KEEL_DENSE_CAUSAL;
    a.q = &q, a.k = &k, a.v = &v, a.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    const keel_dense_outputs outputs = {KEEL_HEADER(keel_dense_outputs), &out, &lse};
    const auto loss = [&] {
        backend.check(dense->forward(backend.ctx(), &a, &outputs));
        const std::vector<float> values = backend.read(out);
        double sum = 0;
        for (size_t i = 0; i < q_size; ++i) sum += double{values[i]} * double{slopes[i]};
        return sum;
    };
    const double value = loss(); // before backward, which needs out and lse
    const keel_dense_gradients gradients = {
        KEEL_HEADER(keel_dense_gradients), &out, &lse, &d_out, &d_q, &d_k, &d_v, nullptr};
    backend.check(dense->backward(backend.ctx(), &a, &gradients));

    double worst = 0;
    const auto compare = [&](const keel_tensor &x, const keel_tensor &gradient) {
        const std::vector<float> before = backend.read(x), expected = backend.read(gradient);
        for (size_t i = 0; i < before.size(); i += 97) {
            constexpr float step = 1.0F / 64;
            std::vector<float> moved = before;
            moved[i] = before[i] + step, backend.write(x, moved);
            const double up = loss();
            moved[i] = before[i] - step, backend.write(x, moved);
            const double slope = (up - loss()) / (2 * step);
            worst = std::max(worst, std::fabs(slope - double{expected[i]}));
        }
        backend.write(x, before);
    };
    compare(q, d_q), compare(k, d_k), compare(v, d_v);
    std::printf("loss %.4f, largest difference of a gradient %.1e\n", value, worst);
    return worst < 1e-3 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) return std::fputs("usage: attention PLUGIN.so\n", stderr), 2;
    try {
        Backend backend(argv[1]);
        return run(backend);
    } catch (const std::exception &error) {
        return std::fprintf(stderr, "attention: %s\n", error.what()), 1;
    }
}
