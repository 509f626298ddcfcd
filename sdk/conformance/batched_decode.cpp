#include "conformance/batched_decode.hpp"

#include "conformance/rope_cases.hpp"

#include <keel/ext/draft/batched_decode.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace keel::conformance {
namespace {

struct Shape {
    std::vector<int32_t> seats;   // the seat of each row of the call
    std::vector<int32_t> lengths; // [n_seats * kv_heads], including the appended rows
    int64_t kv_heads = 2, group = 2, dim = 32;
    keel_dtype k = KEEL_DTYPE_F32, v = KEEL_DTYPE_F32;
    uint64_t attention = KEEL_ATTENTION_CAUSAL, qkv = 0;
    keel_rope_mode mode = KEEL_ROPE_HALF_SPLIT;
    Layout layout = {};
    bool in_place = false, only_append = false;

    int64_t rows() const { return static_cast<int64_t>(seats.size()); }
    int64_t places() const { return static_cast<int64_t>(lengths.size()) / kv_heads; }
};

std::string name_of(const Shape &s) {
    return fmt::format("rows={} seats={} heads={}x{} dim={} k={} v={} attention={} qkv={} gap={} "
                       "in_place={} append={}",
                       s.rows(), s.places(), s.kv_heads, s.group, s.dim, keel_dtype_name(s.k),
                       keel_dtype_name(s.v), s.attention, s.qkv, s.layout.gap, s.in_place,
                       s.only_append);
}

// The inputs of a case. Both sides of the comparison are made from them.
struct Parts {
    Scene scene;
    CacheSpec cache;
    TableSpec tables;
    int q, k, v, out, q_out, lse, positions, seats, q_norm, k_norm, unrotated;
};

Parts parts_of(const Shape &s, Rng &rng) {
    Parts p;
    CacheShape shape;
    shape.lengths = s.lengths;
    shape.head_dim = shape.v_head_dim = s.dim;
    shape.k_dtype = s.k;
    shape.v_dtype = s.v;
    p.cache = p.scene.caches[static_cast<size_t>(add_cache(p.scene, rng, shape))];
    const int64_t n = s.rows(), heads = s.kv_heads * s.group;
    p.tables = add_tables(p.scene, 97, s.dim / 2 * 2, s.mode);
    p.q = p.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {n, heads, s.dim}, s.layout));
    p.k = p.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {n, s.kv_heads, s.dim}, s.layout));
    p.v = p.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {n, s.kv_heads, s.dim}, s.layout));
    p.q_out = s.in_place ? p.q : p.scene.add(blank(KEEL_DTYPE_F32, {n, heads, s.dim}));
    p.out = s.in_place ? p.q : p.scene.add(blank(KEEL_DTYPE_F32, {n, heads, s.dim}, s.layout));
    p.lse = p.scene.add(blank(KEEL_DTYPE_F32, {n, heads}));
    p.unrotated = p.scene.add(blank(KEEL_DTYPE_F32, {n, heads, s.dim}));
    std::vector<int32_t> positions;
    for (const int32_t seat : s.seats)
        positions.push_back(s.lengths[static_cast<size_t>(seat * s.kv_heads)] +
                            static_cast<int32_t>(rng() % 7));
    p.positions = p.scene.add(integer_tensor({n}, positions));
    p.seats = p.scene.add(integer_tensor({n}, s.seats));
    p.q_norm = p.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.dim}));
    p.k_norm = p.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.dim}));
    return p;
}

// Returns a view of rows begin .. begin + n - 1 of the outermost dimension.
keel_tensor rows_of(const keel_tensor &t, int64_t begin, int64_t n) {
    keel_tensor part = t;
    const int64_t row = t.rank == 1 ? int64_t{4} : t.stride[0];
    part.shape[0] = n;
    part.offset += static_cast<uint64_t>(begin * row);
    return part;
}

keel_tensor by_seat(const keel_tensor &t, int64_t kv_heads) {
    keel_tensor books = t;
    const int64_t row = t.rank == 1 ? int64_t{4} : t.stride[0];
    books.rank = t.rank + 1;
    for (uint32_t i = t.rank; i > 0; --i)
        books.shape[i] = t.shape[i - 1], books.stride[i] = t.stride[i - 1];
    books.shape[0] = t.shape[0] / kv_heads;
    books.shape[1] = kv_heads;
    books.stride[0] = row * kv_heads;
    books.stride[1] = row;
    return books;
}

// Makes the args of a call, for all rows or for one row. The tensors are those of a stage.
class Calls {
  public:
    Calls(const Shape &s, const Parts &p, Stage &stage, int64_t begin, int64_t n)
        : tables_(place(p.tables, stage)), q_(part(stage, p.q, begin, n)),
          k_(part(stage, p.k, begin, n)), v_(part(stage, p.v, begin, n)),
          q_out_(part(stage, p.q_out, begin, n)), out_(part(stage, p.out, begin, n)),
          lse_(part(stage, p.lse, begin, n)), unrotated_(part(stage, p.unrotated, begin, n)),
          positions_(part(stage, p.positions, begin, n)) {
        qkv.h = KEEL_HEADER(keel_qkv_args);
        qkv.features = s.qkv;
        qkv.q = &q_, qkv.k = &k_, qkv.v = &v_, qkv.q_out = &q_out_;
        qkv.positions = &positions_;
        qkv.tables = &tables_;
        if ((s.qkv & KEEL_QKV_NORM) != 0)
            qkv.q_norm = stage.tensor(p.q_norm), qkv.k_norm = stage.tensor(p.k_norm);
        if ((s.qkv & KEEL_QKV_UNROTATED) != 0) qkv.q_unrotated = &unrotated_;
        qkv.eps = 1e-5F;
        attention.h = KEEL_HEADER(keel_attention_args);
        attention.features = s.attention;
        attention.q = &q_out_, attention.out = &out_;
        attention.scale = 1.0F / std::sqrt(static_cast<float>(s.dim));
        attention.softcap = 3;
        attention.window = 9;
        if ((s.attention & KEEL_ATTENTION_WINDOW) != 0) attention.q_positions = &positions_;
        if ((s.attention & KEEL_ATTENTION_LSE) != 0) attention.lse = &lse_;
        append.h = KEEL_HEADER(keel_kv_append_args);
        append.k = &k_, append.v = &v_, append.positions = &positions_;
    }
    Calls(const Calls &) = delete;
    Calls &operator=(const Calls &) = delete;

    keel_qkv_args qkv = {};
    keel_attention_args attention = {};
    keel_kv_append_args append = {};

  private:
    static keel_tensor part(Stage &stage, int place, int64_t begin, int64_t n) {
        return rows_of(*stage.tensor(place), begin, n);
    }
    keel_rope_tables tables_;
    keel_tensor q_, k_, v_, q_out_, out_, lse_, unrotated_, positions_;
};

// Stores the first status of a run that is not OK.
struct First {
    keel_status status = KEEL_OK;
    void operator()(keel_status next) {
        if (status == KEEL_OK) status = next;
    }
};

struct BatchKv {
    BatchKv(const Shape &s, const Parts &p, Stage &stage)
        : table(by_seat(*stage.tensor(p.cache.table), s.kv_heads)),
          lengths(by_seat(*stage.tensor(p.cache.lengths), s.kv_heads)),
          positions(by_seat(*stage.tensor(p.cache.positions), s.kv_heads)) {
        view.k = stage.tensor(p.cache.k), view.v = stage.tensor(p.cache.v);
        view.block_table = &table, view.lengths = &lengths, view.positions = &positions;
        view.seats = stage.tensor(p.seats);
        view.block_slots = p.cache.block_slots;
        view.kv_heads = static_cast<uint32_t>(s.kv_heads);
        view.max_length = p.cache.max_length;
    }
    keel_tensor table, lengths, positions;
    keel_batch_kv view = {KEEL_HEADER(keel_batch_kv)};
};

keel_status run_together(const keel_batched_decode &ext, const Shape &s, const Parts &p,
                         Stage &stage) {
    const BatchKv kv(s, p, stage);
    const Calls calls(s, p, stage, 0, s.rows());
    keel_ctx *ctx = stage.side().ctx();
    First first;
    first(ext.prepare(ctx, &calls.qkv, &calls.attention, &kv.view));
    if (s.only_append) {
        if (first.status == KEEL_OK) first(ext.kv_append(ctx, &calls.append, &kv.view));
        return first.status;
    }
    if (first.status == KEEL_OK) first(ext.qkv_prepare(ctx, &calls.qkv, &kv.view));
    if (first.status == KEEL_OK) first(ext.attention(ctx, &calls.attention, &kv.view));
    return first.status;
}

keel_status run_apart(const Shape &s, const Parts &p, Stage &stage) {
    First first;
    for (int64_t i = 0; i < s.rows() && first.status == KEEL_OK; ++i) {
        const int64_t begin = s.seats[static_cast<size_t>(i)] * s.kv_heads;
        const keel_tensor table = rows_of(*stage.tensor(p.cache.table), begin, s.kv_heads),
                          lengths = rows_of(*stage.tensor(p.cache.lengths), begin, s.kv_heads),
                          positions = rows_of(*stage.tensor(p.cache.positions), begin, s.kv_heads);
        keel_kv_view view = {KEEL_HEADER(keel_kv_view)};
        view.k = stage.tensor(p.cache.k), view.v = stage.tensor(p.cache.v);
        view.block_table = &table, view.lengths = &lengths, view.positions = &positions;
        view.block_slots = p.cache.block_slots;
        view.kv_heads = static_cast<uint32_t>(s.kv_heads);
        view.max_length = p.cache.max_length;
        Calls calls(s, p, stage, i, 1);
        calls.qkv.kv = calls.attention.kv = calls.append.kv = &view;
        keel_ctx *ctx = stage.side().ctx();
        if (s.only_append) {
            first(call_op(stage.side().table(), KEEL_OP_KV_APPEND, ctx, &calls.append));
            continue;
        }
        first(call_op(stage.side().table(), KEEL_OP_QKV_PREPARE, ctx, &calls.qkv));
        if (first.status == KEEL_OK)
            first(call_op(stage.side().table(), KEEL_OP_ATTENTION, ctx, &calls.attention));
    }
    return first.status;
}

double rounding_of(keel_dtype dtype) {
    switch (dtype) {
    case KEEL_DTYPE_F16: return 1e-3;
    case KEEL_DTYPE_BF16: return 8e-3;
    case KEEL_DTYPE_Q8_0: return 1.2e-2;
    case KEEL_DTYPE_Q4_0: return 0.15;
    default: return 0;
    }
}

class Check {
  public:
    Check(const keel_batched_decode &ext, Side &subject, const Options &options)
        : ext_(ext), subject_(subject), options_(options) {}

    void run(const Shape &s) {
        const int64_t number = number_++;
        if (options_.only_case >= 0 && number != options_.only_case) return;
        ++report_.cases;
        Rng rng(options_.seed + static_cast<uint64_t>(number));
        const Parts p = parts_of(s, rng);
        Stage together(subject_, p.scene, {}), apart(subject_, p.scene, {});
        const keel_status status = run_together(ext_, s, p, together);
        if (status == KEEL_E_UNSUPPORTED) {
            ++report_.refused;
            if (options_.complete) fail(s, number, "refused: " + subject_.error());
            return;
        }
        const keel_status expected = run_apart(s, p, apart);
        if (status != KEEL_OK || expected != KEEL_OK) {
            fail(s, number,
                 fmt::format("status {} for the sequences together, {} for each sequence alone: {}",
                             status, expected, subject_.error()));
            return;
        }
        compare(s, number, p.scene, p.cache.k, "k", together, apart, 4e-6 + rounding_of(s.k));
        compare(s, number, p.scene, p.cache.v, "v", together, apart, 0);
        compare(s, number, p.scene, p.cache.positions, "positions", together, apart, 0);
        if (s.only_append) return;
        // Both results are within the op's bound of the true value. The two calls can round keys
        // differently, which adds an error.
        compare(s, number, p.scene, p.out, "out", together, apart, 2e-5 + rounding_of(s.k));
        compare(s, number, p.scene, p.lse, "lse", together, apart, 2e-5 + rounding_of(s.k));
        compare(s, number, p.scene, p.unrotated, "unrotated", together, apart, 8e-6);
    }

    // Calls that must be refused: an unknown feature bit, and scores without an output.
    void refusals(const Shape &s) {
        Rng rng(options_.seed);
        const Parts p = parts_of(s, rng);
        Stage stage(subject_, p.scene, {});
        const BatchKv kv(s, p, stage);
        for (const uint64_t bit : {uint64_t{KEEL_ATTENTION_SCORES}, uint64_t{1} << 40}) {
            ++report_.cases;
            Calls calls(s, p, stage, 0, s.rows());
            calls.attention.features |= bit;
            if (ext_.attention(subject_.ctx(), &calls.attention, &kv.view) != KEEL_E_UNSUPPORTED)
                fail(s, number_,
                     fmt::format("attention with feature bit 0x{:x} is not refused", bit));
            if (bit == KEEL_ATTENTION_SCORES) continue;
            calls.qkv.features |= bit;
            if (ext_.qkv_prepare(subject_.ctx(), &calls.qkv, &kv.view) != KEEL_E_UNSUPPORTED)
                fail(s, number_,
                     fmt::format("qkv_prepare with feature bit 0x{:x} is not refused", bit));
        }
    }

    const Report &report() const { return report_; }

  private:
    void compare(const Shape &s, int64_t number, const Scene &scene, int place, const char *what,
                 Stage &together, Stage &apart, double bound) {
        const Tensor &t = scene.tensors[static_cast<size_t>(place)];
        const auto got = together.read(place), want = apart.read(place);
        if (got == want) return;
        if (bound == 0)
            return fail(
                s, number,
                fmt::format(
                    "{}: the sequences together and each sequence alone give different bytes",
                    what));
        const std::vector<double> a = t.values_of(got), b = t.values_of(want);
        for (size_t i = 0; i < a.size(); ++i) {
            if (std::isnan(a[i]) && std::isnan(b[i])) continue;
            if (a[i] == b[i]) continue;
            const double error = std::abs(a[i] - b[i]) / (1 + std::abs(b[i])) / bound;
            if (error <= 1) {
                report_.worst = std::max(report_.worst, error);
                continue;
            }
            return fail(
                s, number,
                fmt::format("{}[{}]: {} for the sequences together, {} for each sequence alone",
                            what, i, a[i], b[i]));
        }
    }

    void fail(const Shape &s, int64_t number, const std::string &message) {
        ++report_.failures;
        if (static_cast<int>(report_.messages.size()) < options_.max_messages)
            report_.messages.push_back(
                fmt::format("case {} ({}): {}", number, name_of(s), message));
    }

    const keel_batched_decode &ext_;
    Side &subject_;
    Options options_;
    Report report_;
    int64_t number_ = 0;
};

void all_cases(Check &check, bool quick) {
    const std::vector<int32_t> short_ones = {1, 1, 17, 16, 40, 33, 5, 64};
    for (const keel_dtype dtype :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        check.run({.seats = {2, 0, 3}, .lengths = short_ones, .k = dtype, .v = dtype});
        check.run({.seats = {3, 2, 1, 0},
                   .lengths = short_ones,
                   .group = 3,
                   .dim = 64,
                   .k = dtype,
                   .v = dtype,
                   .in_place = true});
        check.run({.seats = {1, 3},
                   .lengths = short_ones,
                   .k = dtype,
                   .v = KEEL_DTYPE_F16,
                   .only_append = true});
    }
    const uint64_t causal = KEEL_ATTENTION_CAUSAL;
    for (const uint64_t features :
         {uint64_t{0}, causal | KEEL_ATTENTION_WINDOW, causal | KEEL_ATTENTION_SOFTCAP,
          causal | KEEL_ATTENTION_LSE, causal | KEEL_ATTENTION_WINDOW | KEEL_ATTENTION_LSE}) {
        check.run({.seats = {2, 3, 1}, .lengths = short_ones, .dim = 48, .attention = features});
        check.run({.seats = {0}, .lengths = short_ones, .group = 1, .attention = features});
    }
    for (const uint64_t features : {uint64_t{KEEL_QKV_NORM}, uint64_t{KEEL_QKV_UNROTATED},
                                    uint64_t{KEEL_QKV_NORM | KEEL_QKV_UNROTATED}})
        check.run({.seats = {3, 0},
                   .lengths = short_ones,
                   .qkv = features,
                   .mode = KEEL_ROPE_INTERLEAVED});
    check.run({.seats = {1, 2}, .lengths = short_ones, .layout = {5, 0}});
    // Long and short sequences in one call, so that slots are split into parts.
    check.run({.seats = {1, 0, 2},
               .lengths = {1300, 1200, 3, 9, 2100, 700},
               .k = KEEL_DTYPE_F16,
               .v = KEEL_DTYPE_F16});
    check.run({.seats = {1, 0}, .lengths = {4100, 90}, .kv_heads = 1, .group = 4, .dim = 64});
    check.run({.seats = {2, 0},
               .lengths = short_ones,
               .dim = 320,
               .k = KEEL_DTYPE_F16,
               .v = KEEL_DTYPE_F16});
    if (quick) return;
    for (const int64_t dim : {256, 512})
        check.run({.seats = {1, 0, 3}, .lengths = short_ones, .dim = dim});
    for (int64_t dim = 2; dim <= 130; dim += 7)
        check.run({.seats = {1, 0, 3}, .lengths = short_ones, .dim = dim});
    std::vector<int32_t> many;
    std::vector<int32_t> seats;
    for (int32_t i = 0; i < 24; ++i) {
        many.insert(many.end(), {1 + 37 * i % 90, 1 + 11 * i});
        seats.push_back((i * 7) % 24);
    }
    for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_Q8_0})
        check.run({.seats = seats, .lengths = many, .group = 4, .dim = 64, .k = dtype, .v = dtype});
}

} // namespace

Report check_batched_decode(const Library &library, Side &subject, const Options &options) {
    const auto get = library.plugin().get_extension;
    const void *theirs = get != nullptr ? get(KEEL_EXT_BATCHED_DECODE) : nullptr;
    Report report;
    if (theirs == nullptr) return report;
    keel_batched_decode ext;
    if (keel_adopt(&ext, sizeof ext, theirs, KEEL_PREFIX(keel_batched_decode, attention)) !=
        KEEL_OK) {
        report.failures = 1;
        report.messages.emplace_back("the table is too small or of another ABI version");
        return report;
    }
    Check check(ext, subject, options);
    all_cases(check, options.quick);
    check.refusals({.seats = {1, 0}, .lengths = {3, 4, 5, 6}});
    return check.report();
}

} // namespace keel::conformance
