#include "eval/bench/attention/attention_bench.hpp"

#include "base/error.hpp"
#include "device/tensor.hpp"
#include "eval/bench/probes/flops.hpp"
#include "numbers/convert.hpp"
#include "platform/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <keel/ext/draft/attention_dense.h>
#include <optional>
#include <random>

namespace keel {
namespace {

constexpr double shortest_sample = 0.05; // seconds; short passes run several times in a sample

uint64_t size_of(keel_dtype dtype) { return dtype == KEEL_DTYPE_F32 ? 4 : 2; }

// Returns the table of the extension. If the backend has none, returns nullopt and sets `why`.
std::optional<keel_dense> dense_table(const Device &device, std::string &why) {
    const void *theirs = device.extension(KEEL_EXT_ATTENTION_DENSE);
    if (theirs == nullptr) {
        why = "the backend does not have the extension " KEEL_EXT_ATTENTION_DENSE;
        return std::nullopt;
    }
    keel_dense table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_dense, forward)) != KEEL_OK ||
        table.forward == nullptr) {
        why = "the backend's table of " KEEL_EXT_ATTENTION_DENSE
              " is too small, has another ABI major version or has no forward pass";
        return std::nullopt;
    }
    return table;
}

Tensor random_tensor(Device &device, keel_dtype dtype, std::initializer_list<int64_t> shape,
                     uint64_t seed) {
    Tensor tensor = Tensor::allocate(device, dtype, shape);
    const auto n = static_cast<size_t>(tensor.bytes() / size_of(dtype));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float &value : values) value = normal(random);
    std::vector<std::byte> bytes(tensor.bytes());
    convert_from_f32(dtype, values.data(), bytes.data(), n);
    tensor.write(bytes.data());
    return tensor;
}

// A test with its device, tensors and samples.
class AttentionRig {
  public:
    AttentionRig(std::shared_ptr<Device> device, const keel_dense &table,
                 const AttentionShape &shape, bool backward)
        : device_(std::move(device)), table_(table), runs_backward_(backward) {
        const auto [batch, heads, kv_heads, dim, length, causal, dtype] = shape;
        q_ = random_tensor(*device_, dtype, {batch, length, heads, dim}, 1);
        k_ = random_tensor(*device_, dtype, {batch, length, kv_heads, dim}, 2);
        v_ = random_tensor(*device_, dtype, {batch, length, kv_heads, dim}, 3);
        out_ = Tensor::allocate(*device_, dtype, {batch, length, heads, dim});
        lse_ = Tensor::allocate(*device_, KEEL_DTYPE_F32, {batch, heads, length});
        args_.features = causal ? KEEL_DENSE_CAUSAL : 0;
        args_.q = q_.c(), args_.k = k_.c(), args_.v = v_.c();
        args_.scale = 1.0F / std::sqrt(static_cast<float>(dim));
        outputs_.out = out_.c(), outputs_.lse = lse_.c();
        if (!backward) return;
        d_out_ = random_tensor(*device_, dtype, {batch, length, heads, dim}, 4);
        d_q_ = Tensor::allocate(*device_, dtype, {batch, length, heads, dim});
        d_k_ = Tensor::allocate(*device_, dtype, {batch, length, kv_heads, dim});
        d_v_ = Tensor::allocate(*device_, dtype, {batch, length, kv_heads, dim});
        gradients_.out = out_.c(), gradients_.lse = lse_.c(), gradients_.d_out = d_out_.c();
        gradients_.d_q = d_q_.c(), gradients_.d_k = d_k_.c(), gradients_.d_v = d_v_.c();
    }
    AttentionRig(const AttentionRig &) = delete;
    AttentionRig &operator=(const AttentionRig &) = delete;

    // Runs both passes once. Returns the bytes that the backend holds afterwards in addition to the
    // bytes before. If the backend refuses the shape, sets `refused`.
    uint64_t warm_up(std::string &refused) {
        const uint64_t before = device_->mem_info().ours;
        keel_status status = call(&keel_dense::forward, outputs_);
        if (status == KEEL_OK && runs_backward_) status = call(&keel_dense::backward, gradients_);
        if (status == KEEL_E_UNSUPPORTED) {
            refused = take_message();
            if (refused.empty()) refused = "the backend gives no reason";
            return 0;
        }
        if (status != KEEL_OK) device_->fail(status, KEEL_EXT_ATTENTION_DENSE);
        device_->stream().wait();
        const uint64_t after = device_->mem_info().ours;
        return after > before ? after - before : 0;
    }

    // Measures each pass once. Appends the seconds of a call.
    void measure(std::vector<double> &forward, std::vector<double> &backward) {
        forward.push_back(seconds([&] { return call(&keel_dense::forward, outputs_); }));
        if (runs_backward_)
            backward.push_back(seconds([&] { return call(&keel_dense::backward, gradients_); }));
    }

  private:
    template <typename Pass, typename Results> keel_status call(Pass pass, const Results &results) {
        HostServices::drop_error();
        return (table_.*pass)(device_->ctx(), &args_, &results);
    }

    template <typename Call> double seconds(const Call &pass) {
        const auto start = std::chrono::steady_clock::now();
        for (int64_t calls = 1;; ++calls) {
            device_->check(KEEL_EXT_ATTENTION_DENSE, pass);
            device_->stream().wait();
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
            if (spent.count() >= shortest_sample) return spent.count() / static_cast<double>(calls);
        }
    }

    std::shared_ptr<Device> device_;
    const keel_dense &table_;
    bool runs_backward_;
    Tensor q_, k_, v_, out_, lse_, d_out_, d_q_, d_k_, d_v_;
    keel_dense_attention args_ = {KEEL_HEADER(keel_dense_attention)};
    keel_dense_outputs outputs_ = {KEEL_HEADER(keel_dense_outputs)};
    keel_dense_gradients gradients_ = {KEEL_HEADER(keel_dense_gradients)};
};

void check_options(const AttentionBenchOptions &o) {
    const auto require = [](bool ok, std::string_view name, std::string_view expected,
                            int64_t found) {
        if (!ok) throw_error(ErrorKind::usage, "{}: expected {}, found {}", name, expected, found);
    };
    require(o.batch >= 1 && o.batch <= 1024, "batch", "1 to 1024", o.batch);
    require(o.heads >= 1 && o.heads <= 1024, "heads", "1 to 1024", o.heads);
    require(o.kv_heads >= 1 && o.heads % o.kv_heads == 0, "kv heads",
            fmt::format("a divisor of {} heads", o.heads), o.kv_heads);
    require(o.repeat >= 1, "repeat", "1 or more", o.repeat);
    for (const int64_t dim : o.head_dims)
        require(dim >= KEEL_DENSE_LEAST_DIM && dim <= KEEL_DENSE_MOST_DIM, "head dim", "16 to 256",
                dim);
    for (const int64_t length : o.lengths)
        require(length >= 1 && length <= 65536, "length", "1 to 65536", length);
}

std::vector<AttentionShape> shapes_of(const AttentionBenchOptions &o) {
    std::vector<AttentionShape> shapes;
    for (const keel_dtype dtype : o.dtypes)
        for (const int64_t dim : o.head_dims)
            for (const bool causal : o.causal)
                for (const int64_t length : o.lengths)
                    shapes.push_back({o.batch, o.heads, o.kv_heads, dim, length, causal, dtype});
    return shapes;
}

void describe(AttentionBenchReport &report, Device &device) {
    report.backend = device.plugin();
    report.device = device.device_info().name;
    report.description = device.info().description;
    report.cpu = machine_info().cpu;
    report.threads = device.host()->team().cpus();
    report.is_processor = device.device_info().type == KEEL_DEVICE_CPU;
    report.peak_flops = measure_flops(device.host()->team()).flops;
}

} // namespace

double AttentionShape::forward_flop() const {
    const auto n = static_cast<double>(length);
    return 4 * n * n * static_cast<double>(batch * heads * head_dim) * (causal ? 0.5 : 1);
}

uint64_t AttentionShape::forward_bytes() const {
    const auto tokens = static_cast<uint64_t>(batch * length);
    const uint64_t numbers = tokens * static_cast<uint64_t>(2 * (heads + kv_heads) * head_dim);
    return numbers * size_of(dtype) + tokens * static_cast<uint64_t>(heads) * 4;
}

uint64_t AttentionShape::backward_bytes() const {
    const auto tokens = static_cast<uint64_t>(batch * length);
    const uint64_t numbers = tokens * static_cast<uint64_t>(4 * (heads + kv_heads) * head_dim);
    return numbers * size_of(dtype) + tokens * static_cast<uint64_t>(heads) * 4;
}

uint64_t AttentionShape::logits_bytes() const {
    return 4 * static_cast<uint64_t>(batch * heads * length * length);
}

AttentionBenchReport bench_attention(const OpenDevice &open, const AttentionBenchOptions &options) {
    check_options(options);
    AttentionBenchReport report;
    report.repeat = options.repeat;
    std::optional<keel_dense> table;
    {
        const std::shared_ptr<Device> device = open();
        describe(report, *device);
        table = dense_table(*device, report.without);
    }
    if (!table) return report;
    report.has_backward = table->backward != nullptr;
    const bool backward = options.backward && report.has_backward;
    const std::vector<AttentionShape> shapes = shapes_of(options);
    std::vector<std::vector<double>> forward(shapes.size()), backwards(shapes.size());
    for (const AttentionShape &shape : shapes) report.tests.push_back({shape, {}, 0, {}});
    const auto rounds = static_cast<uint64_t>(options.repeat);
    uint64_t done = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < shapes.size(); ++i, ++done) {
            if (options.progress) options.progress(done, rounds * shapes.size());
            AttentionTest &test = report.tests[i];
            if (!test.refused.empty()) continue;
            AttentionRig rig(open(), *table, shapes[i], backward);
            test.scratch_bytes = std::max(test.scratch_bytes, rig.warm_up(test.refused));
            if (test.refused.empty()) rig.measure(forward[i], backwards[i]);
        }
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
        std::vector<double> both;
        for (size_t r = 0; r < backwards[i].size(); ++r)
            both.push_back(forward[i][r] + backwards[i][r]);
        report.tests[i].seconds = {Spread::of(forward[i]), Spread::of(backwards[i]),
                                   Spread::of(both)};
    }
    return report;
}

} // namespace keel
