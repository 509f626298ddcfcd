// Tests of ops that policies need, and of ops that change a cache. A call on a pipeline's device is
// saved and then repeated.
#include "eval/compare/op_dump.hpp"
#include "eval/compare/op_outputs.hpp"
#include "eval/replay/replay.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

using namespace keel;

namespace {

namespace fs = std::filesystem;

constexpr int64_t heads = 2, q_heads = 4, dim = 64, slots = 40;
const std::vector<int32_t> lengths{23, 9};

class Bench {
  public:
    explicit Bench(keel_dtype kv)
        : pipeline_(pipeline::config_from_overrides(std::vector<std::string>{
              std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny", "backend.plugin=cpu",
              "backend.params.compute=exact"})),
          kv_(kv) {}

    const keel_tensor *floats(std::vector<int64_t> shape, keel_dtype dtype = KEEL_DTYPE_F32) {
        return make(dtype, shape, [&](TensorValues &v) {
            for (float &x : v.values) x = std::normal_distribution<float>()(random_);
        });
    }
    const keel_tensor *ints(std::vector<int64_t> shape, const std::vector<int32_t> &values) {
        return make(KEEL_DTYPE_I32, shape,
                    [&](TensorValues &v) { v.values.assign(values.begin(), values.end()); });
    }
    // Returns a cache view whose blocks are in a mixed order. All slots contain random values.
    const keel_kv_view *cache() {
        const int64_t block = pipeline_.device().info().kv_block_slots;
        const int64_t columns = (slots + block - 1) / block;
        std::vector<int32_t> table, positions;
        for (int64_t i = 0; i < heads * columns; ++i)
            table.push_back(static_cast<int32_t>(heads * columns - 1 - i));
        for (int64_t i = 0; i < heads * columns * block; ++i)
            positions.push_back(static_cast<int32_t>(i % (columns * block)));
        views_.push_back({KEEL_HEADER(keel_kv_view)});
        keel_kv_view &v = views_.back();
        v.k = floats({heads * columns, block, dim}, kv_);
        v.v = floats({heads * columns, block, dim}, kv_);
        v.block_table = ints({heads, columns}, table);
        v.lengths = ints({heads}, lengths);
        v.positions = ints({heads, columns * block}, positions);
        v.block_slots = static_cast<uint32_t>(block);
        v.kv_heads = heads;
        v.max_length = 23;
        return &v;
    }
    const keel_rope_tables *tables() {
        tables_.mode = KEEL_ROPE_HALF_SPLIT;
        tables_.rot = dim;
        std::vector<float> cosines, sines;
        for (int64_t row = 0; row < 50; ++row) {
            for (int64_t i = 0; i < dim / 2; ++i) {
                const double angle =
                    static_cast<double>(row) / std::pow(100.0, static_cast<double>(2 * i) / dim);
                cosines.push_back(static_cast<float>(std::cos(angle)));
                sines.push_back(static_cast<float>(std::sin(angle)));
            }
        }
        tables_.cos =
            make(KEEL_DTYPE_F32, {50, dim / 2}, [&](TensorValues &v) { v.values = cosines; });
        tables_.sin =
            make(KEEL_DTYPE_F32, {50, dim / 2}, [&](TensorValues &v) { v.values = sines; });
        return &tables_;
    }
    const keel_scores *scores(std::vector<int64_t> shape, keel_reduce queries, keel_reduce group) {
        scores_.out = floats(std::move(shape));
        scores_.window = 3;
        scores_.reduce_queries = queries;
        scores_.reduce_group = group;
        scores_.accumulate = 1;
        return &scores_;
    }

    // Runs the op once and saves it with its results. Then repeats the op on both backends.
    template <typename Args> void check(keel_op op, Args args) {
        INFO(op_name(op) << ", features " << args.features);
        args.h = KEEL_HEADER(Args);
        const test::TempFolder folder;
        const OpHandle planned = pipeline_.executor().plan(op, args, {});
        std::unique_ptr<OpDump> dump;
        pipeline_.executor().set_observer(
            [&](const PlannedOp &p, const keel_op_args *a, bool after) {
                if (!after) {
                    dump = std::make_unique<OpDump>(pipeline_.device(), p, a);
                    return;
                }
                dump->complete(pipeline_, p, a);
                for (const OpOutput &output : read_outputs(pipeline_.device(), op, a))
                    dump->add_values("actual", output.values);
                dump->write(folder / "op", {{"step", "a test"}});
            });
        pipeline_.executor().run(*planned, args);
        pipeline_.executor().set_observer({});
        const SavedOp saved = load_saved_op(folder / "op");
        for (const std::string backend : {"cpu", "reference"}) {
            std::vector<std::string> sets{"model.path=.", "backend.plugin=" + backend};
            if (backend == "cpu") sets.emplace_back("backend.params.compute=exact");
            const auto device = open_device(pipeline::config_from_overrides(sets).backend,
                                            std::make_shared<HostServices>());
            const ReplayReport r = replay_op(saved, device, {});
            INFO(replay_text(r));
            CHECK(r.passed());
            REQUIRE_FALSE(r.outputs.empty());
            for (const ReplayOutput &o : r.outputs) {
                REQUIRE(o.saved_error);
                CHECK(*o.saved_error <= std::max(o.bound, 1e-12));
            }
        }
    }

  private:
    template <typename Fill>
    const keel_tensor *make(keel_dtype dtype, const std::vector<int64_t> &s, const Fill &fill) {
        Device &device = pipeline_.device();
        tensors_.push_back(s.size() == 1   ? Tensor::allocate(device, dtype, {s[0]})
                           : s.size() == 2 ? Tensor::allocate(device, dtype, {s[0], s[1]})
                                           : Tensor::allocate(device, dtype, {s[0], s[1], s[2]}));
        TensorValues values;
        values.shape = s;
        int64_t n = 1;
        for (const int64_t d : s) n *= d;
        values.values.resize(static_cast<size_t>(n));
        fill(values);
        write_values(device, *tensors_.back().c(), values);
        return tensors_.back().c();
    }

    Pipeline pipeline_;
    keel_dtype kv_;
    std::mt19937 random_{7};
    std::deque<Tensor> tensors_;
    std::deque<keel_kv_view> views_;
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    keel_scores scores_ = {KEEL_HEADER(keel_scores)};
};

// Returns the lists of kept slots of each head, one after the other. Unused entries are 0.
std::vector<int32_t> index_lists() { return {0, 2, 3, 9, 22, 1, 5, 8, 0, 0}; }

} // namespace

TEST_CASE("ops on the content of a cache are repeated, including scores") {
    const keel_dtype kv = GENERATE(KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0);
    Bench bench(kv);
    const auto attention = [&](uint64_t features, const keel_scores *scores) {
        keel_attention_args a = {};
        a.features = features | KEEL_ATTENTION_CAUSAL;
        a.q = bench.floats({5, q_heads, dim});
        a.kv = bench.cache();
        a.out = bench.floats({5, q_heads, dim});
        a.scale = 0.125F;
        a.scores = scores;
        bench.check(KEEL_OP_ATTENTION, a);
    };
    attention(0, nullptr);
    attention(KEEL_ATTENTION_SCORES,
              bench.scores({heads, slots}, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN));
    attention(KEEL_ATTENTION_SCORES,
              bench.scores({q_heads, slots}, KEEL_REDUCE_MAX, KEEL_REDUCE_NONE));

    keel_attention_scores_args s = {};
    s.q = bench.floats({5, q_heads, dim});
    s.kv = bench.cache();
    s.scores = bench.scores({heads, slots}, KEEL_REDUCE_SUM, KEEL_REDUCE_SUM);
    s.scale = 0.125F;
    bench.check(KEEL_OP_ATTENTION_SCORES, s);
    s.features = KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS;
    s.ranges = bench.ints({2, 2}, {0, 7, 10, 23});
    s.weights = bench.floats({heads, slots});
    bench.check(KEEL_OP_ATTENTION_SCORES, s);
    s.features = KEEL_SCORES_CAUSAL | KEEL_SCORES_SOFTCAP | KEEL_SCORES_WINDOW;
    s.q_positions = bench.ints({5}, {20, 21, 22, 23, 24});
    s.window = 8;
    s.softcap = 2;
    bench.check(KEEL_OP_ATTENTION_SCORES, s);

    keel_keys_args keys = {};
    keys.kv = bench.cache();
    keys.begin = 2;
    keys.end = 20;
    keys.out = bench.floats({heads, slots, dim});
    bench.check(KEEL_OP_KEY_PROJECT, keys);
    keys.features = KEEL_KEYS_UNROTATED;
    keys.tables = bench.tables();
    keys.projection = bench.floats({dim, 5});
    keys.out = bench.floats({heads, slots, 5});
    bench.check(KEEL_OP_KEY_PROJECT, keys);
    keys.features = KEEL_KEYS_NORMS;
    keys.tables = nullptr;
    keys.projection = nullptr;
    keys.out = bench.floats({heads, slots});
    bench.check(KEEL_OP_KEY_PROJECT, keys);
    keys.features = KEEL_KEYS_L1;
    bench.check(KEEL_OP_VALUE_NORMS, keys);
    keys.features = KEEL_KEYS_NORMALIZED;
    keys.out = bench.floats({heads, dim});
    bench.check(KEEL_OP_KEY_SUM, keys);

    keel_query_stats_args stats = {};
    stats.q = bench.floats({6, q_heads, dim});
    stats.sum = bench.floats({q_heads, dim});
    stats.second = bench.floats({q_heads, dim, dim});
    bench.check(KEEL_OP_QUERY_STATS, stats);
}

TEST_CASE("compaction and rotation of a cache are repeated from the rows before the op") {
    const keel_dtype kv = GENERATE(KEEL_DTYPE_F16, KEEL_DTYPE_Q4_0);
    Bench bench(kv);
    keel_kv_gather_args g = {};
    g.from = g.to = bench.cache();
    g.index = bench.ints({heads, 5}, index_lists());
    g.count = bench.ints({heads}, {5, 3});
    const keel_tensor *sides[] = {
        bench.floats({heads, slots}),
        bench.ints({heads, slots}, std::vector<int32_t>(heads * slots, 4))};
    g.sides = sides;
    g.n_sides = 2;
    bench.check(KEEL_OP_KV_GATHER, g);
    g.to = bench.cache(); // a fork of the cache
    g.n_sides = 0;
    bench.check(KEEL_OP_KV_GATHER, g);

    keel_kv_rerotate_args r = {};
    r.kv = bench.cache();
    r.tables = bench.tables();
    std::vector<int32_t> rows, positions;
    for (int32_t i = 0; i < heads * slots; ++i) {
        rows.push_back(i % 7 == 0 ? -1 : i % 50);
        positions.push_back(i);
    }
    r.row = bench.ints({heads, slots}, rows);
    r.new_positions = bench.ints({heads, slots}, positions);
    r.begin = 3;
    r.end = 23;
    bench.check(KEEL_OP_KV_REROTATE, r);
    r.features = KEEL_REROTATE_SOURCE;
    r.source = bench.floats({heads, 20, dim});
    bench.check(KEEL_OP_KV_REROTATE, r);
}
