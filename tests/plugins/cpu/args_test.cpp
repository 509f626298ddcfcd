// Tests of tensors with dtypes that the ops' headers do not allow. The core does not pass tensors
// of this kind, and kernels would read after their end.
#include "cpu_fixture.hpp"

using namespace keel;
using namespace keel::test;

namespace {

// Returns the status of an op's call. Checks that its plan has the same status.
template <class Args>
keel_status status_of(Context &c, keel_op op,
                      keel_status(KEEL_CALL *call)(keel_ctx *, const Args *), const Args &a) {
    keel_plan *plan = nullptr;
    const keel_status planned =
        c->op_plan(c.get(), op, reinterpret_cast<const keel_op_args *>(&a), &plan);
    c->plan_destroy(c.get(), plan);
    CHECK(call(c.get(), &a) == planned);
    return planned;
}

} // namespace

TEST_CASE("norms refuse a residual or a bias that is not f32") {
    Context c(variants().front(), "exact");
    const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 2, 32), out = c.tensor(KEEL_DTYPE_F32, 2, 32),
                      half = c.tensor(KEEL_DTYPE_F16, 2, 32);
    keel_tensor weight = c.tensor(KEEL_DTYPE_F32, 1, 32),
                half_row = c.tensor(KEEL_DTYPE_F16, 1, 32);
    weight.rank = half_row.rank = 1;
    weight.shape[0] = half_row.shape[0] = 32;
    c.write(x, std::vector<float>(64, 1.0F));
    c.write(out, std::vector<float>(64, 7.0F));
    keel_norm_args a{};
    a.h = KEEL_HEADER(keel_norm_args);
    a.x = &x, a.weight = &weight, a.out = &out;
    a.eps = 1e-5F;
    a.residual = &half;
    CHECK(status_of(c, KEEL_OP_ADD_RMS_NORM, c->add_rms_norm, a) == KEEL_E_UNSUPPORTED);
    a.residual = nullptr;
    CHECK(status_of(c, KEEL_OP_ADD_RMS_NORM, c->add_rms_norm, a) == KEEL_E_INVALID_ARG);
    a.bias = &half_row;
    CHECK(status_of(c, KEEL_OP_LAYER_NORM, c->layer_norm, a) == KEEL_E_UNSUPPORTED);
    CHECK(c.read<float>(out) == std::vector<float>(64, 7.0F));
    a.bias = &weight;
    CHECK(status_of(c, KEEL_OP_LAYER_NORM, c->layer_norm, a) == KEEL_OK);
    a.bias = nullptr;
    CHECK(status_of(c, KEEL_OP_LAYER_NORM, c->layer_norm, a) == KEEL_OK);
}

TEST_CASE("a product refuses a bias that is missing or not f32") {
    Context c(variants().front(), "exact");
    const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 1, 4), w = c.tensor(KEEL_DTYPE_F32, 2, 4),
                      out = c.tensor(KEEL_DTYPE_F32, 1, 2);
    keel_tensor half = c.tensor(KEEL_DTYPE_F16, 1, 2);
    half.rank = 1, half.shape[0] = 2;
    c.write<float>(x, {1, 1, 1, 1});
    c.write<float>(w, {1, 2, 3, 4, 5, 6, 7, 8});
    c.write<float>(out, {-1, -2});
    keel_matmul_args a = matmul_args(x, w, out);
    a.features = KEEL_MATMUL_BIAS;
    CHECK(status_of(c, KEEL_OP_MATMUL, c->matmul, a) == KEEL_E_UNSUPPORTED);
    a.bias = &half;
    CHECK(status_of(c, KEEL_OP_MATMUL, c->matmul, a) == KEEL_E_UNSUPPORTED);
    CHECK(c.read<float>(out) == std::vector<float>{-1, -2});
    a.features = 0; // a bias that is not added is not checked
    CHECK(status_of(c, KEEL_OP_MATMUL, c->matmul, a) == KEEL_OK);
    CHECK(c.read<float>(out) == std::vector<float>{10, 26});
}
