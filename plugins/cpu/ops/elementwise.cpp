// The ops silu_mul, gelu_mul, add, add_bias, scale, scaled_add and softmax. They process single
// rows, and the workers share the rows. If there is one long row (decode), it is cut into pieces.
#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"

namespace keel_cpu {
namespace {

keel_status plan_f32(keel_ctx *ctx, const char *name, uint64_t features, uint64_t known,
                     bool all_f32, PlanChoice &choice) {
    const keel_status status = check_features(ctx, features, known, name);
    if (status != KEEL_OK) return status;
    if (!all_f32) return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: expected only f32 tensors", name);
    name_kernel(choice, "%s %s", name, ctx->rows->isa);
    return KEEL_OK;
}

// Calls f(row, begin, count) for pieces of rows. Together the pieces cover `rows` rows of n
// elements.
template <class F> keel_status each_piece(keel_ctx *ctx, int64_t rows, int64_t n, F &&f) {
    if (rows == 0 || n == 0) return KEEL_OK;
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(rows * n) * 4),
                    [&](const Team &team) {
                        if (rows >= team.n) {
                            const Range r = share(rows, 1, team);
                            for (int64_t i = r.begin; i < r.end; ++i) f(i, int64_t{0}, n);
                            return;
                        }
                        const Range r = share(n, 16, team);
                        for (int64_t i = 0; i < rows && r.begin < r.end; ++i)
                            f(i, r.begin, r.end - r.begin);
                    });
}

float *floats(uint8_t *p) { return reinterpret_cast<float *>(p); }

keel_status gate(keel_ctx *ctx, const keel_gate_args *a, bool gelu) {
    const bool pairs = (a->features & KEEL_GATE_INTERLEAVED) != 0,
               tanh = (a->features & KEEL_GELU_TANH) != 0;
    const bool with_up = !pairs && a->up != nullptr;
    const Rows g(a->gate), u(with_up ? a->up : a->gate), out(a->out);
    return each_piece(ctx, out.count, out.n, [&](int64_t row, int64_t begin, int64_t n) {
        const float *in = floats(g[row]) + (pairs ? 2 : 1) * begin;
        const float *up = with_up ? floats(u[row]) + begin : nullptr;
        if (gelu)
            ctx->rows->gelu_mul(in, up, n, pairs, tanh, floats(out[row]) + begin);
        else
            ctx->rows->silu_mul(in, up, n, floats(out[row]) + begin);
    });
}

bool gate_f32(const keel_gate_args *a) {
    return is_f32(a->gate) && is_f32(a->out) && (a->up == nullptr || is_f32(a->up));
}

} // namespace

keel_status plan_silu_mul(keel_ctx *ctx, const keel_gate_args *a, PlanChoice &c) noexcept {
    if ((a->features & KEEL_GATE_INTERLEAVED) == 0 && a->up == nullptr)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "silu_mul: expected up, or interleaved pairs of gate and up; found neither");
    return plan_f32(ctx, "silu_mul", a->features, KEEL_GATE_INTERLEAVED, gate_f32(a), c);
}

keel_status KEEL_CALL op_silu_mul(keel_ctx *ctx, const keel_gate_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_silu_mul(ctx, a, choice);
    return status != KEEL_OK ? status : gate(ctx, a, false);
}

keel_status plan_gelu_mul(keel_ctx *ctx, const keel_gate_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "gelu_mul", a->features, KEEL_GATE_INTERLEAVED | KEEL_GELU_TANH,
                    gate_f32(a), c);
}

keel_status KEEL_CALL op_gelu_mul(keel_ctx *ctx, const keel_gate_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_gelu_mul(ctx, a, choice);
    return status != KEEL_OK ? status : gate(ctx, a, true);
}

keel_status plan_add(keel_ctx *ctx, const keel_elementwise_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "add", a->features, 0, is_f32(a->a) && is_f32(a->b) && is_f32(a->out), c);
}

keel_status KEEL_CALL op_add(keel_ctx *ctx, const keel_elementwise_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_add(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->a), y(a->b), out(a->out);
    return each_piece(ctx, out.count, out.n, [&](int64_t row, int64_t begin, int64_t n) {
        ctx->rows->add(floats(x[row]) + begin, floats(y[row]) + begin, n, floats(out[row]) + begin);
    });
}

keel_status plan_add_bias(keel_ctx *ctx, const keel_elementwise_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "add_bias", a->features, 0, is_f32(a->a) && is_f32(a->b) && is_f32(a->out),
                    c);
}

keel_status KEEL_CALL op_add_bias(keel_ctx *ctx, const keel_elementwise_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_add_bias(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->a), out(a->out);
    const float *bias = data_as<const float>(a->b);
    return each_piece(ctx, out.count, out.n, [&](int64_t row, int64_t begin, int64_t n) {
        ctx->rows->add(floats(x[row]) + begin, bias + begin, n, floats(out[row]) + begin);
    });
}

keel_status plan_scale(keel_ctx *ctx, const keel_elementwise_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "scale", a->features, 0, is_f32(a->a) && is_f32(a->out), c);
}

keel_status KEEL_CALL op_scale(keel_ctx *ctx, const keel_elementwise_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_scale(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->a), out(a->out);
    return each_piece(ctx, out.count, out.n, [&](int64_t row, int64_t begin, int64_t n) {
        ctx->rows->scale(floats(x[row]) + begin, a->factor, n, floats(out[row]) + begin);
    });
}

keel_status plan_scaled_add(keel_ctx *ctx, const keel_elementwise_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "scaled_add", a->features, 0, is_f32(a->a) && is_f32(a->out), c);
}

keel_status KEEL_CALL op_scaled_add(keel_ctx *ctx, const keel_elementwise_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_scaled_add(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->a), out(a->out);
    return each_piece(ctx, out.count, out.n, [&](int64_t row, int64_t begin, int64_t n) {
        ctx->rows->scaled_add(floats(x[row]) + begin, a->factor, n, floats(out[row]) + begin);
    });
}

keel_status plan_softmax(keel_ctx *ctx, const keel_move_args *a, PlanChoice &c) noexcept {
    return plan_f32(ctx, "softmax", a->features, 0, is_f32(a->x) && is_f32(a->out), c);
}

keel_status KEEL_CALL op_softmax(keel_ctx *ctx, const keel_move_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_softmax(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->x), out(a->out);
    if (out.n == 0) return KEEL_OK;
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(out.count * out.n) * 4),
                    [&](const Team &team) {
                        const Range r = share(out.count, 1, team);
                        for (int64_t i = r.begin; i < r.end; ++i)
                            ctx->rows->softmax(floats(x[i]), out.n, floats(out[i]));
                    });
}

} // namespace keel_cpu
