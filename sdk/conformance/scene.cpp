#include "conformance/scene.hpp"

#include "conformance/larger_plan.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

namespace keel::conformance {

int Scene::add(Tensor t) {
    tensors.push_back(std::move(t));
    return static_cast<int>(tensors.size()) - 1;
}

int Scene::add(CacheSpec cache) {
    caches.push_back(cache);
    return static_cast<int>(caches.size()) - 1;
}

int Scene::add(WeightSpec weight) {
    weights.push_back(std::move(weight));
    return static_cast<int>(weights.size()) - 1;
}

namespace {

// Fills the rows of used slots in an arena. All other rows keep the bytes 0xFF.
void fill_rows(Rng &rng, Tensor &arena, const CacheShape &shape, const std::vector<int32_t> &table,
               int64_t blocks_per_head) {
    const auto slots = static_cast<int64_t>(shape.block_slots);
    for (size_t h = 0; h < shape.lengths.size(); ++h) {
        for (int64_t slot = 0; slot < shape.lengths[h]; ++slot) {
            const int64_t block =
                table[h * static_cast<size_t>(blocks_per_head) + static_cast<size_t>(slot / slots)];
            const Tensor row = random_tensor(rng, arena.dtype, {1, arena.row_length()});
            std::memcpy(arena.image.data() + arena.row_offset(block * slots + slot % slots),
                        row.image.data() + row.offset, row.row_bytes());
        }
    }
}

} // namespace

int add_cache(Scene &scene, Rng &rng, const CacheShape &shape) {
    const auto heads = static_cast<int64_t>(shape.lengths.size());
    const auto slots = static_cast<int64_t>(shape.block_slots);
    const int64_t longest =
        *std::max_element(shape.lengths.begin(), shape.lengths.end()) + shape.spare;
    const int64_t per_head =
        (longest + slots - 1) / slots + 1; // the last entry of each head is not used
    std::vector<int32_t> ids;
    int64_t needed = 0;
    const auto blocks_of = [&](size_t h) {
        return (shape.lengths[h] + shape.spare + slots - 1) / slots;
    };
    for (size_t h = 0; h < shape.lengths.size(); ++h) needed += blocks_of(h);
    const int64_t blocks = needed + 2;
    ids.resize(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng);
    std::vector<int32_t> table(static_cast<size_t>(heads * per_head), -1);
    std::vector<int32_t> positions(static_cast<size_t>(heads * per_head * slots), -1);
    size_t next = 0;
    for (size_t h = 0; h < shape.lengths.size(); ++h) {
        for (int64_t b = 0; b < blocks_of(h); ++b)
            table[h * static_cast<size_t>(per_head) + static_cast<size_t>(b)] = ids[next++];
        int32_t position = static_cast<int32_t>(rng() % 5);
        for (int64_t slot = 0; slot < shape.lengths[h] && !shape.empty; ++slot) {
            positions[h * static_cast<size_t>(per_head * slots) + static_cast<size_t>(slot)] =
                position;
            position += 1 + static_cast<int32_t>(rng() % 3 == 0);
        }
    }
    Tensor k = blank(shape.k_dtype, {blocks, slots, shape.head_dim});
    Tensor v = blank(shape.v_dtype, {blocks, slots, shape.v_head_dim});
    if (!shape.empty) {
        fill_rows(rng, k, shape, table, per_head);
        fill_rows(rng, v, shape, table, per_head);
    }
    CacheSpec spec;
    spec.k = scene.add(std::move(k));
    spec.v = scene.add(std::move(v));
    spec.table = scene.add(integer_tensor({heads, per_head}, table));
    spec.lengths = scene.add(integer_tensor({heads}, shape.lengths));
    spec.positions = scene.add(integer_tensor({heads, per_head * slots}, positions));
    spec.block_slots = shape.block_slots;
    spec.kv_heads = static_cast<uint32_t>(heads);
    spec.max_length = longest;
    return scene.add(spec);
}

GuardedPage::GuardedPage() : page_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) {
    pages_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages_ == MAP_FAILED) throw Unusable{"no memory for a guarded page"};
    mprotect(static_cast<char *>(pages_) + page_, page_, PROT_NONE);
}

GuardedPage::~GuardedPage() { munmap(pages_, 2 * page_); }

void *GuardedPage::last(uint64_t bytes) {
    return static_cast<char *>(pages_) + (page_ - bytes) / 8 * 8;
}

Stage::Stage(Side &side, const Scene &scene, Manner manner)
    : side_(side), scene_(scene), manner_(manner) {
    for (const Tensor &t : scene.tensors) {
        buffers_.push_back(side.upload(t.image.data(), t.image.size()));
        tensors_.push_back(t.describe(buffers_.back()));
    }
    for (const CacheSpec &c : scene.caches) {
        keel_kv_view view = {};
        view.h = KEEL_HEADER(keel_kv_view);
        view.k = tensor(c.k);
        view.v = tensor(c.v);
        view.block_table = tensor(c.table);
        view.lengths = tensor(c.lengths);
        view.positions = tensor(c.positions);
        view.block_slots = c.block_slots;
        view.kv_heads = c.kv_heads;
        view.max_length = c.max_length;
        caches_.push_back(view);
    }
    weights_.assign(scene.weights.size(), nullptr);
}

Stage::~Stage() {
    side_.finish();
    for (keel_plan *plan : plans_) side_.table().plan_destroy(side_.ctx(), plan);
    for (keel_weight *weight : weights_) {
        if (weight != nullptr) side_.table().weight_destroy(side_.ctx(), weight);
    }
    for (keel_buffer *buffer : buffers_) side_.destroy(buffer);
}

keel_weight *Stage::weight(int place) {
    if (weights_[place] != nullptr) return weights_[place];
    const WeightSpec &spec = scene_.weights[place];
    std::deque<keel_weight_source> sources;
    std::vector<const keel_weight_source *> pointers;
    for (const int at : spec.sources) {
        const Tensor &t = scene_.tensors[at];
        keel_weight_source source = {};
        source.h = KEEL_HEADER(keel_weight_source);
        source.mapping = t.image.data();
        source.mapping_bytes = t.image.size();
        source.offset = t.offset;
        source.dtype = t.dtype;
        source.rows = t.shape[0];
        source.cols = t.shape[1];
        sources.push_back(source);
        pointers.push_back(&sources.back());
    }
    keel_weight_desc desc = {};
    desc.h = KEEL_HEADER(keel_weight_desc);
    desc.sources = pointers.data();
    desc.n_sources = static_cast<uint32_t>(pointers.size());
    desc.join = spec.join;
    desc.use = spec.use;
    desc.max_m = manner_.larger ? 2 * spec.max_m + 1 : spec.max_m;
    desc.experts = spec.experts;
    const keel_backend &table = side_.table();
    const keel_status status = table.weight_prepare == nullptr
                                   ? KEEL_E_UNSUPPORTED
                                   : table.weight_prepare(side_.ctx(), &desc, &weights_[place]);
    refused_ = refused_ || status == KEEL_E_UNSUPPORTED;
    if (status != KEEL_OK && status != KEEL_E_UNSUPPORTED) {
        throw Unusable{"weight_prepare returned status " + std::to_string(status) + ": " +
                       side_.error()};
    }
    return weights_[place];
}

std::vector<uint8_t> Stage::read(int place) {
    std::vector<uint8_t> image(scene_.tensors[place].image.size());
    side_.read(buffers_[place], image.data(), image.size());
    return image;
}

keel_status Stage::run_bytes(keel_op op, void *args, uint32_t size) {
    thread_local GuardedPage guard;
    const uint32_t handed = size + (manner_.longer ? 64 : 0);
    auto *at = static_cast<unsigned char *>(guard.last(handed));
    std::memset(at, 0xA5, handed);
    std::memcpy(at, args, size);
    auto *header = reinterpret_cast<keel_op_args *>(at);
    header->h.struct_size = handed;
    if (manner_.longer)
        header->h.abi_version = KEEL_ABI_VERSION + 1; // as a peer of the next minor version
    header->features |= manner_.more_features;
    const keel_backend &table = side_.table();
    if (table.op_plan != nullptr) {
        keel_plan *plan = nullptr;
        // a template for op_plan has no buffers
        for (keel_tensor &t : tensors_) t.buffer = nullptr;
        std::optional<LargerPlan> larger;
        if (manner_.larger) larger.emplace(op, args);
        const keel_status status =
            table.op_plan(side_.ctx(), op, larger ? larger->args() : header, &plan);
        for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].buffer = buffers_[i];
        planned_unknown_ = manner_.more_features != 0 && status == KEEL_OK;
        if (status == KEEL_E_UNSUPPORTED) refused_ = true;
        if (status != KEEL_OK && manner_.more_features == 0) return status;
        plans_.push_back(plan);
        keel_plan_info info = {};
        info.h = KEEL_HEADER(keel_plan_info);
        if (plan != nullptr && table.plan_info(side_.ctx(), plan, &info) == KEEL_OK)
            kernel_ = info.kernel;
        header->plan = manner_.planned ? plan : nullptr;
    }
    ++calls_;
    const keel_status status = call_op(table, op, side_.ctx(), at);
    if (status == KEEL_E_UNSUPPORTED) refused_ = true;
    return status;
}

} // namespace keel::conformance
