#include "kv/rig.hpp"

#include "plugin/library.hpp"
#include "reference/reference.hpp"
#include "support/skip.hpp"

#include <cmath>
#include <filesystem>

namespace keel::test {
namespace {

constexpr int64_t max_write = 64;

std::filesystem::path cpu_plugin() {
    return std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins/cpu.so";
}

std::shared_ptr<Device> open_device(const std::string &name) {
    auto host = std::make_shared<HostServices>(1);
    if (name == "reference") return Device::open_reference(host);
    DeviceSpec spec;
    spec.plugin = name;
    spec.host = host;
    if (name == "copying") {
        spec.table = *reference_backend();
        spec.table.buffer_commit = nullptr;
        return Device::open(spec);
    }
    static PluginLibrary library(cpu_plugin(), {});
    // the parameters switch off rounding, because results are compared with formulas
    static ParamValues params = [] {
        const GivenParam exact{"compute", "exact", GivenParam::Form::plain, {}, {}, {}};
        return library.params().bind(std::span(&exact, 1), {});
    }();
    spec.table = library.backend();
    spec.params.assign(params.data(), params.data() + params.size());
    return Device::open(spec);
}

} // namespace

std::vector<std::string> kv_devices() {
    std::vector<std::string> names = {"reference", "copying"};
    if (std::filesystem::exists(cpu_plugin())) names.push_back("cpu");
    return names;
}

void need_cpu_plugin() {
    if (!std::filesystem::exists(cpu_plugin())) skip("the CPU plugin was not built");
}

std::shared_ptr<Executor> open_executor(const std::string &device) {
    return std::make_shared<Executor>(open_device(device), Executor::Options{});
}

KvShape kv_shape(int64_t max_slots, keel_dtype dtype, uint32_t sequences) {
    KvShape shape;
    shape.layers = 2;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 32;
    shape.key_dtype = shape.value_dtype = dtype;
    shape.block_slots = 8;
    shape.max_slots = max_slots;
    shape.sequences = sequences;
    return shape;
}

std::vector<float> Tokens::noise(uint64_t seed, size_t n) const {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + 12345);
    std::vector<float> row(n);
    for (float &x : row)
        x = static_cast<float>(static_cast<int64_t>(random() >> 40) - (1 << 23)) /
            static_cast<float>(1 << 23);
    return row;
}

void Tokens::rotate(float *row, int64_t position) const {
    const size_t half = frequencies_.size();
    for (size_t f = 0; f < half; ++f) {
        const double angle = static_cast<double>(position) * frequencies_[f];
        const double a = row[f], b = row[f + half];
        row[f] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        row[f + half] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
}

std::vector<float> Tokens::key(int64_t token, uint32_t layer, uint32_t head,
                               int64_t position) const {
    auto row = noise(static_cast<uint64_t>(token) * 4096 + layer * 64 + head, shape_.head_dim);
    rotate(row.data(), position);
    return row;
}

std::vector<float> Tokens::value(int64_t token, uint32_t layer, uint32_t head) const {
    return noise(static_cast<uint64_t>(token) * 4096 + layer * 64 + head + 2048, shape_.head_dim);
}

std::vector<float> Tokens::query(int64_t seed, int64_t position) const {
    std::vector<float> all;
    for (uint32_t h = 0; h < shape_.heads; ++h) {
        auto row =
            noise((uint64_t{1} << 50) + static_cast<uint64_t>(seed) * 64 + h, shape_.head_dim);
        rotate(row.data(), position);
        all.insert(all.end(), row.begin(), row.end());
    }
    return all;
}

Rig::Rig(const std::string &device, const KvShape &shape, std::vector<double> frequencies)
    : shape_(shape), executor_(open_executor(device)), tokens_(shape, std::move(frequencies)) {
    const KvTemplate kv(shape);
    const Tensor rows = Tensor::shape(KEEL_DTYPE_F32, {max_write, shape.kv_heads, shape.head_dim});
    const Tensor positions = Tensor::shape(KEEL_DTYPE_I32, {max_write});
    keel_kv_append_args append = {KEEL_HEADER(keel_kv_append_args)};
    append.k = append.v = rows.c();
    append.positions = positions.c();
    append.kv = kv.view();
    append_ = executor_->plan(KEEL_OP_KV_APPEND, append, {});
    const Tensor q = Tensor::shape(KEEL_DTYPE_F32, {1, shape.heads, shape.head_dim});
    keel_attention_args attention = {KEEL_HEADER(keel_attention_args)};
    attention.features = KEEL_ATTENTION_CAUSAL;
    attention.q = attention.out = q.c();
    attention.kv = kv.view();
    attention.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    attention_ = executor_->plan(KEEL_OP_ATTENTION, attention, {});
    const Tensor out =
        Tensor::shape(KEEL_DTYPE_F32, {shape.kv_heads, shape.max_slots, shape.head_dim});
    keel_keys_args keys = {KEEL_HEADER(keel_keys_args)};
    keys.kv = kv.view();
    keys.out = out.c();
    keys.end = shape.max_slots;
    keys_ = executor_->plan(KEEL_OP_KEY_PROJECT, keys, {});
    gather_ = KvCache::plan_gather(*executor_, shape, 0);
}

std::unique_ptr<KvCache> Rig::make_cache() {
    return std::make_unique<KvCache>(*executor_, shape_, executor_->placement());
}

void Rig::write(KvCache &cache, std::span<const int64_t> tokens,
                std::span<const int32_t> positions) {
    const auto m = static_cast<int64_t>(tokens.size());
    Device &device = executor_->device();
    const Tensor k =
        Tensor::allocate(device, KEEL_DTYPE_F32, {m, shape_.kv_heads, shape_.head_dim});
    const Tensor v =
        Tensor::allocate(device, KEEL_DTYPE_F32, {m, shape_.kv_heads, shape_.head_dim});
    const Tensor p = Tensor::allocate(device, KEEL_DTYPE_I32, {m});
    p.write(positions.data());
    for (uint32_t l = 0; l < shape_.layers; ++l) {
        std::vector<float> host_k, host_v;
        for (size_t t = 0; t < tokens.size(); ++t) {
            for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
                const auto key = tokens_.key(tokens[t], l, h, positions[t]);
                const auto value = tokens_.value(tokens[t], l, h);
                host_k.insert(host_k.end(), key.begin(), key.end());
                host_v.insert(host_v.end(), value.begin(), value.end());
            }
        }
        k.write(host_k.data());
        v.write(host_v.data());
        keel_kv_append_args args = {KEEL_HEADER(keel_kv_append_args)};
        args.k = k.c();
        args.v = v.c();
        args.positions = p.c();
        args.kv = cache.view(l);
        executor_->run(*append_, args);
    }
    executor_->stream().wait();
}

void Rig::feed(KvCache &cache, int64_t first, int64_t n) {
    for (int64_t done = 0; done < n;) {
        const int64_t m = std::min(max_write, n - done);
        std::vector<int64_t> tokens;
        std::vector<int32_t> positions;
        for (int64_t i = 0; i < m; ++i) {
            tokens.push_back(first + done + i);
            positions.push_back(static_cast<int32_t>(first + done + i));
        }
        cache.append(positions, m);
        write(cache, tokens, positions);
        done += m;
    }
}

std::vector<float> Rig::attention(KvCache &cache, uint32_t layer, std::span<const float> query) {
    Device &device = executor_->device();
    const Tensor q = Tensor::allocate(device, KEEL_DTYPE_F32, {1, shape_.heads, shape_.head_dim});
    const Tensor out = Tensor::allocate(device, KEEL_DTYPE_F32, {1, shape_.heads, shape_.head_dim});
    q.write(query.data());
    keel_attention_args args = {KEEL_HEADER(keel_attention_args)};
    args.features = KEEL_ATTENTION_CAUSAL;
    args.q = q.c();
    args.out = out.c();
    args.kv = cache.view(layer);
    args.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    executor_->run(*attention_, args);
    return out.read<float>();
}

std::vector<float> Rig::keys(KvCache &cache, uint32_t layer) {
    const int64_t longest = std::max<int64_t>(1, cache.max_length(layer));
    const Tensor out = Tensor::allocate(executor_->device(), KEEL_DTYPE_F32,
                                        {shape_.kv_heads, longest, shape_.head_dim});
    const std::vector<float> zeros(shape_.kv_heads * static_cast<size_t>(longest) * shape_.head_dim,
                                   0.0f);
    out.write(zeros.data());
    keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
    args.kv = cache.view(layer);
    args.out = out.c();
    args.end = longest;
    executor_->run(*keys_, args);
    return out.read<float>();
}

std::vector<int32_t> Rig::device_positions(KvCache &cache, uint32_t layer, uint32_t head) {
    const keel_tensor &t = *cache.view(layer)->positions;
    const Buffer *buffer = executor_->device().find(t.buffer);
    std::vector<int32_t> row(static_cast<size_t>(cache.length(layer, head)));
    if (!row.empty()) {
        buffer->read(t.offset + head * static_cast<uint64_t>(t.stride[0]), row.data(),
                     row.size() * sizeof(int32_t));
    }
    return row;
}

std::vector<double> Rig::expected(uint32_t layer, std::span<const float> query,
                                  const std::vector<std::vector<int64_t>> &tokens,
                                  const std::vector<std::vector<int64_t>> &positions) const {
    const size_t dim = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
    std::vector<double> out(shape_.heads * dim, 0.0);
    for (uint32_t h = 0; h < shape_.heads; ++h) {
        const auto kv = static_cast<uint32_t>(h / group);
        std::vector<double> weight;
        double largest = -1e300, sum = 0;
        for (size_t j = 0; j < tokens[kv].size(); ++j) {
            const auto key = tokens_.key(tokens[kv][j], layer, kv, positions[kv][j]);
            double dot = 0;
            for (size_t d = 0; d < dim; ++d)
                dot += static_cast<double>(query[h * dim + d]) * static_cast<double>(key[d]);
            weight.push_back(dot / std::sqrt(static_cast<double>(dim)));
            largest = std::max(largest, weight.back());
        }
        for (double &w : weight) sum += w = std::exp(w - largest);
        for (size_t j = 0; j < weight.size(); ++j) {
            const auto value = tokens_.value(tokens[kv][j], layer, kv);
            for (size_t d = 0; d < dim; ++d)
                out[h * dim + d] += weight[j] / sum * static_cast<double>(value[d]);
        }
    }
    return out;
}

double largest_difference(std::span<const float> a, std::span<const double> b) {
    double largest = a.size() == b.size() ? 0 : 1e300;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        const double d = std::abs(static_cast<double>(a[i]) - b[i]);
        if (!(d <= largest)) largest = d; // a NaN is not lost
    }
    return largest;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
    return largest_difference(a, std::vector<double>(b.begin(), b.end()));
}

} // namespace keel::test
