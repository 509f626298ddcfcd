// The op expert_matmul. The rows of x are sorted by expert, so that each expert is one product that
// uses the kernels of matmul.
#include "cpu/ops/matmul_job.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/ops/task_ranges.hpp"

#include <math.h>
#include <new>
#include <string.h>

namespace keel_cpu {
namespace {

// The rows of one expert: a product with the rows of x that chose the expert.
struct ExpertJob {
    Matmul product;
    Cut cut;
    int64_t first;      // place of its first row among the rows sorted by expert
    int64_t first_task; // number of its first task among the tasks of all experts
    uint8_t *input;     // rounded or gathered rows of x; NULL: the kernel reads the row in x
};

// Places of a pair (row, chosen expert) in the products, if not 0 or more.
enum : int32_t { no_expert = -1, in_out = -2 }; // in_out: the kernel wrote its result to out

// An expert_matmul op: sizes, and areas of the scratch memory, as offsets in bytes.
struct ExpertMatmul {
    WeightView w{};
    RowSource source{};
    int64_t m = 0, top = 0, n = 0, k = 0, experts = 0;
    bool shared = false, sums = false,
         accumulates = false; // shared: one x for all experts of a row
    uint64_t jobs = 0, counts = 0, order = 0, places = 0, inputs = 0, products = 0, workers = 0,
             total = 0;
    int64_t worker_bytes = 0;

    int64_t pairs() const { return m * top; }
};

keel_status settle_experts(keel_ctx *ctx, const keel_expert_matmul_args *a, ExpertMatmul &e) {
    const keel_status known = check_features(
        ctx, a->features, KEEL_EXPERTS_SUM | KEEL_EXPERTS_ACCUMULATE, "expert_matmul");
    if (known != KEEL_OK) return known;
    e.sums = (a->features & KEEL_EXPERTS_SUM) != 0;
    e.accumulates = (a->features & KEEL_EXPERTS_ACCUMULATE) != 0;
    if (!is_f32(a->x) || !is_f32(a->out) || a->index->dtype != KEEL_DTYPE_I32 ||
        (e.sums && !is_f32(a->weights)))
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "expert_matmul: expected x, weights and out in f32, and index in i32");
    if (a->weight != nullptr)
        e.w = a->weight->view;
    else if (a->w == nullptr || !view_tensor(a->w, e.source, e.w))
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "expert_matmul: the dtype of w is not supported");
    e.experts = a->experts;
    e.m = a->index->shape[0], e.top = a->index->shape[1];
    e.n = a->out->shape[a->out->rank - 1], e.k = e.w.cols;
    e.shared = a->x->shape[1] == 1;
    const int64_t prepared = a->weight == nullptr ? e.experts : a->weight->experts;
    if (e.experts < 1 || prepared != e.experts || e.w.rows != e.experts * e.n)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "expert_matmul: expected a weight with %lld experts of %lld rows, found %lld "
                    "experts and %lld rows in total",
                    (long long)e.experts, (long long)e.n, (long long)prepared, (long long)e.w.rows);
    return KEEL_OK;
}

// The product of one expert with `rows` rows of x, without addresses.
Matmul product_of(const keel_ctx *ctx, const ExpertMatmul &e, int64_t rows) {
    Matmul product;
    product.task.w = e.w;
    product.task.w.rows = e.n;
    choose_kernel(ctx, rows, product);
    return product;
}

// Lays out the scratch memory for m rows, and for all smaller numbers of rows.
void lay_out(const keel_ctx *ctx, ExpertMatmul &e) {
    const int64_t pairs = e.pairs(), used = e.experts < pairs ? e.experts : pairs;
    // An input row takes 4 bytes for each column if it is gathered, and less if it is rounded. The
    // packed rows of an expert fill whole blocks of rows.
    const int64_t pad = ctx->matmul_bf16 != nullptr ? ctx->matmul_bf16->x_rows : 1,
                  row = round_up(e.k, 32) * 4 + 4;
    e.worker_bytes = 0;
    const int64_t some_rows[] = {1, 9, pairs}; // each kernel that needs memory serves one of them
    for (const int64_t rows : some_rows) {
        const int64_t bytes = worker_bytes(ctx, product_of(ctx, e, rows));
        if (bytes > e.worker_bytes) e.worker_bytes = bytes;
    }
    const Matmul largest_product = product_of(ctx, e, pairs);
    if (largest_product.panel_bytes > e.worker_bytes) e.worker_bytes = largest_product.panel_bytes;
    uint64_t at = 0;
    const auto area = [&at](int64_t bytes) {
        const uint64_t begin = at;
        at += static_cast<uint64_t>(round_up(bytes, 64));
        return begin;
    };
    e.jobs = area(used * static_cast<int64_t>(sizeof(ExpertJob)));
    e.counts = area(e.experts * 4);
    e.order = area(pairs * 4);
    e.places = area(pairs * 4);
    e.inputs = area((pairs + used * (pad - 1)) * row + used * 64);
    e.products = area(pairs * e.n * 4);
    e.workers = area(e.worker_bytes * static_cast<int64_t>(ctx->threads));
    e.total = at;
}

// One call: the jobs of the chosen experts.
class ExpertCall {
  public:
    ExpertCall(keel_ctx *ctx, const keel_expert_matmul_args *a, const ExpertMatmul &e,
               uint8_t *memory)
        : ctx_(ctx), e_(e), memory_(memory), out_(data_of(a->out)), a_(a), index_(a->index),
          jobs_(reinterpret_cast<ExpertJob *>(memory + e.jobs)),
          order_(reinterpret_cast<int32_t *>(memory + e.order)),
          places_(reinterpret_cast<int32_t *>(memory + e.places)),
          products_(reinterpret_cast<float *>(memory + e.products)) {
        sort();
        make_jobs();
    }

    keel_status run() {
        const uint64_t flops = 2 * static_cast<uint64_t>(sorted_) * static_cast<uint64_t>(e_.n) *
                               static_cast<uint64_t>(e_.k);
        const uint32_t workers = workers_for(ctx_, 0, flops);
        // Rounding few rows takes less time than a barrier.
        const bool prepare_first = sorted_ <= 8;
        if (prepare_first) prepare({0, sorted_});
        const bool finishes = e_.sums || direct_ < e_.pairs();
        TaskRanges tasks(tasks_, workers);
        return parallel(ctx_, workers, [&](const Team &team) {
            if (!prepare_first) {
                prepare(share(sorted_, 1, team));
                team.barrier();
            }
            uint8_t *own = memory_ + e_.workers + e_.worker_bytes * team.worker;
            for (int64_t task; (task = tasks.take(team.worker)) >= 0;) multiply(task, own);
            if (!finishes) return;
            team.barrier();
            finish(team);
        });
    }

  private:
    const int32_t *chosen(int64_t row) const {
        return reinterpret_cast<const int32_t *>(index_[row]);
    }
    const float *x_of(int64_t pair) const {
        const int64_t row = pair / e_.top, j = e_.shared ? 0 : pair % e_.top;
        return reinterpret_cast<const float *>(data_of(a_->x) + row * a_->x->stride[0] +
                                               j * a_->x->stride[1]);
    }
    float *out_of(int64_t pair) const { // only without KEEL_EXPERTS_SUM
        return reinterpret_cast<float *>(out_ + pair / e_.top * a_->out->stride[0] +
                                         pair % e_.top * a_->out->stride[1]);
    }

    // Sorts the pairs by expert: order_[place] is the pair.
    void sort() {
        int32_t *counts = reinterpret_cast<int32_t *>(memory_ + e_.counts);
        for (int64_t i = 0; i < e_.experts; ++i) counts[i] = 0;
        for (int64_t r = 0; r < e_.m; ++r)
            for (int64_t j = 0; j < e_.top; ++j)
                if (is_expert(chosen(r)[j])) ++counts[chosen(r)[j]];
        int64_t first = 0;
        for (int64_t i = 0; i < e_.experts; ++i) {
            const int64_t count = counts[i];
            counts[i] = static_cast<int32_t>(first);
            if (count != 0) add_job(i, first, count);
            first += count;
        }
        sorted_ = first;
        for (int64_t r = 0; r < e_.m; ++r)
            for (int64_t j = 0; j < e_.top; ++j) {
                const int32_t expert = chosen(r)[j];
                places_[r * e_.top + j] = is_expert(expert) ? counts[expert] : no_expert;
                if (is_expert(expert))
                    order_[counts[expert]++] = static_cast<int32_t>(r * e_.top + j);
            }
    }
    bool is_expert(int32_t i) const { return i >= 0 && i < e_.experts; }

    void add_job(int64_t expert, int64_t first, int64_t rows) {
        ExpertJob &job = *new (&jobs_[n_jobs_++]) ExpertJob{};
        job.first = first;
        job.product.task.w =
            expert_view(e_.w, e_.experts, expert, ctx_->matmul->group, job.product.source);
        choose_kernel(ctx_, rows, job.product);
    }

    // Sets the addresses of all jobs.
    void make_jobs() {
        uint8_t *input = memory_ + e_.inputs;
        // All experts of a single row can read the same input.
        const bool one_input = e_.shared && e_.m == 1 && n_jobs_ == sorted_;
        for (int64_t i = 0; i < n_jobs_; ++i) {
            ExpertJob &job = jobs_[i];
            Matmul &p = job.product;
            const int64_t pair = order_[job.first];
            job.first_task = tasks_;
            job.cut = cut(ctx_, p);
            tasks_ += job.cut.tasks();
            p.task.x_stride = e_.k * 4;
            if (p.rounds() || p.m > 1) {
                job.input = one_input ? memory_ + e_.inputs : input;
                input += p.rounds() ? rounded_bytes(ctx_, p) : round_up(p.m * e_.k * 4, 64);
                p.task.x = reinterpret_cast<const float *>(job.input);
                if (p.rounds()) use_rounded(p, job.input);
            } else {
                p.task.x = x_of(pair);
            }
            p.task.out = products_ + job.first * e_.n;
            p.task.out_stride = e_.n * 4;
            if (e_.sums || p.m > 1) continue;
            p.task.out = out_of(pair);
            places_[pair] = in_out;
            ++direct_;
        }
        inputs_ = one_input && sorted_ > 1 ? 1 : sorted_;
    }

    // Returns the last job whose `member` is at most `at`.
    ExpertJob &job_at(int64_t ExpertJob::*member, int64_t at) const {
        int64_t low = 0, high = n_jobs_;
        while (high - low > 1) {
            const int64_t mid = (low + high) / 2;
            (jobs_[mid].*member <= at ? low : high) = mid;
        }
        return jobs_[low];
    }

    // Rounds or gathers the input rows at these places.
    void prepare(const Range &places) {
        for (int64_t place = places.begin; place < places.end && place < inputs_; ++place) {
            ExpertJob &job = job_at(&ExpertJob::first, place);
            if (job.input == nullptr) continue;
            const float *x = x_of(order_[place]);
            const int64_t row = place - job.first;
            if (job.product.rounds())
                round_row(ctx_, job.product, job.input, row, x);
            else
                memcpy(job.input + row * e_.k * 4, x, static_cast<size_t>(e_.k) * 4);
        }
    }

    void multiply(int64_t task, uint8_t *own) {
        const ExpertJob &job = job_at(&ExpertJob::first_task, task);
        run_task(ctx_, job.product, job.cut, task - job.first_task, job.input, own);
    }

    // Writes the products to out.
    void finish(const Team &team) {
        constexpr int64_t step = 256; // columns of a piece
        const int64_t rows = e_.sums ? e_.m : e_.pairs(), pieces = (e_.n + step - 1) / step;
        const Range r = share(rows * pieces, 1, team);
        for (int64_t i = r.begin; i < r.end; ++i) {
            const int64_t row = i / pieces, c = i % pieces * step,
                          columns = e_.n - c < step ? e_.n - c : step;
            if (e_.sums)
                add_up(row, c, columns);
            else
                copy_product(row, c, columns);
        }
    }
    void copy_product(int64_t pair, int64_t c, int64_t columns) {
        if (places_[pair] == in_out) return;
        float *out = out_of(pair) + c;
        if (places_[pair] == no_expert) return fill_nan(out, columns);
        memcpy(out, products_ + places_[pair] * e_.n + c, static_cast<size_t>(columns) * 4);
    }
    void add_up(int64_t row, int64_t c, int64_t columns) {
        float *out = reinterpret_cast<float *>(out_ + row * a_->out->stride[0]) + c;
        const float *weights =
            reinterpret_cast<const float *>(data_of(a_->weights) + row * a_->weights->stride[0]);
        if (!e_.accumulates)
            for (int64_t i = 0; i < columns; ++i) out[i] = 0;
        for (int64_t j = 0; j < e_.top; ++j) {
            const int32_t place = places_[row * e_.top + j];
            if (place == no_expert) return fill_nan(out, columns);
            ctx_->rows->scaled_add(products_ + place * e_.n + c, weights[j], columns, out);
        }
    }
    static void fill_nan(float *out, int64_t n) {
        for (int64_t i = 0; i < n; ++i) out[i] = NAN;
    }

    keel_ctx *ctx_;
    const ExpertMatmul &e_;
    uint8_t *memory_, *out_;
    const keel_expert_matmul_args *a_;
    Rows index_;
    ExpertJob *jobs_;
    int32_t *order_, *places_;
    float *products_;
    int64_t n_jobs_ = 0, sorted_ = 0, inputs_ = 0, tasks_ = 0, direct_ = 0;
};

} // namespace

keel_status plan_expert_matmul(keel_ctx *ctx, const keel_expert_matmul_args *a,
                               PlanChoice &choice) noexcept {
    ExpertMatmul e;
    const keel_status status = settle_experts(ctx, a, e);
    if (status != KEEL_OK) return status;
    lay_out(ctx, e);
    choice.scratch_bytes = e.total;
    const Matmul most = product_of(ctx, e, e.pairs());
    const bool fast = most.may_round() || product_of(ctx, e, 1).may_round();
    name_kernel(choice, "expert_matmul %s %s %s", weight_name(e.w.type), isa_of(ctx, most),
                fast ? "fast" : "exact");
    return KEEL_OK;
}

keel_status KEEL_CALL op_expert_matmul(keel_ctx *ctx, const keel_expert_matmul_args *a) noexcept {
    ExpertMatmul e;
    const keel_status status = settle_experts(ctx, a, e);
    if (status != KEEL_OK || e.m == 0 || e.n == 0) return status;
    lay_out(ctx, e);
    uint8_t *memory = scratch(ctx, e.total);
    return memory == nullptr ? keel_status{KEEL_E_OUT_OF_MEMORY}
                             : ExpertCall(ctx, a, e, memory).run();
}

} // namespace keel_cpu
