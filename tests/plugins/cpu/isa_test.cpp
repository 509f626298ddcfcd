#include "cpu_fixture.hpp"

using namespace keel;
using namespace keel::test;

namespace {

// Returns the name of the kernel in a plan of the op.
std::string planned_kernel(Context &c, keel_op op, keel_op_args *args) {
    keel_plan *plan = nullptr;
    REQUIRE(c->op_plan(c.get(), op, args, &plan) == KEEL_OK);
    keel_plan_info info{};
    info.h = KEEL_HEADER(keel_plan_info);
    REQUIRE(c->plan_info(c.get(), plan, &info) == KEEL_OK);
    c->plan_destroy(c.get(), plan);
    return info.kernel;
}

} // namespace

TEST_CASE("a chosen instruction set is the one whose kernels run") {
    const std::vector<Variant> all = variants();
    REQUIRE(all.size() >= 1); // `scalar` runs on any machine
    for (const Variant &v : all) {
        INFO(v.word);
        Context c(v, "fast");
        const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 1, 32), w = c.tensor(KEEL_DTYPE_F16, 4, 32),
                          out = c.tensor(KEEL_DTYPE_F32, 1, 4);
        keel_matmul_args a = matmul_args(x, w, out);
        // The name is compiled into the kernel file, so it says which file the table came from. If
        // a set has f16 products, `fast` uses them, and `exact` does not.
        const bool rounds = v.isa == "fp16" || v.isa == "i8mm";
        CHECK(planned_kernel(c, KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&a)) ==
              "matmul f16 " + v.few + (rounds ? " fast" : " exact"));
        Context exact(v, "exact");
        CHECK(planned_kernel(exact, KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&a)) ==
              "matmul f16 " + v.few + " exact");
        // For many rows, some sets round both operands to bf16 and report this. A plan that also
        // serves few rows, which are rounded, reports it too.
        const keel_tensor xs = c.tensor(KEEL_DTYPE_F32, 64, 32),
                          outs = c.tensor(KEEL_DTYPE_F32, 64, 4);
        keel_matmul_args many = matmul_args(xs, w, outs);
        const bool rounds_many = rounds || v.word != v.few;
        CHECK(planned_kernel(c, KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&many)) ==
              "matmul f16 " + v.word + (rounds_many ? " fast" : " exact"));
        CHECK(planned_kernel(exact, KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&many)) ==
              "matmul f16 " + v.few + " exact");
        keel_ctx_info info{};
        info.h = KEEL_HEADER(keel_ctx_info);
        REQUIRE(c->ctx_info(c.get(), &info) == KEEL_OK);
        const std::string described = info.description,
                          expected = v.word + ", 2 threads, compute fast, prefetch ";
        // The default `auto` depends on the processor. Shared rows are always prefetched.
        CHECK((described == expected + "on" || described == expected + "of shared rows"));
        CHECK(info.activation_dtype == KEEL_DTYPE_F32);
        for (const char *prefetch : {"on", "off"}) {
            Context forced(v, "fast", 2, prefetch);
            REQUIRE(forced->ctx_info(forced.get(), &info) == KEEL_OK);
            CHECK(info.description == expected + prefetch);
        }
    }
}

TEST_CASE("auto chooses the best instruction set of the machine") {
    std::string best, before;
    for (const Variant &v : variants())
        if (v.word == v.isa) before = best, best = v.word;
    Context c({&cpu_backend(), "auto", "", ""}, "exact");
    keel_ctx_info info{};
    info.h = KEEL_HEADER(keel_ctx_info);
    REQUIRE(c->ctx_info(c.get(), &info) == KEEL_OK);
    // `auto` does not choose avx512bf16 on processors on which it is slower. amx is always faster.
    const std::string word = info.description;
    const bool left_out =
        best == "avx512bf16" && word.rfind(before + ", 2 threads, compute exact", 0) == 0;
    CHECK((left_out || word.rfind(best + ", 2 threads, compute exact", 0) == 0));
}

TEST_CASE("the setting of prefetch is reported, and changes no product") {
    for (const Variant &v : variants()) {
        INFO(v.word);
        std::vector<std::vector<float>> products;
        for (const std::string prefetch : {"on", "off"}) {
            Context c(v, "exact", 2, prefetch);
            keel_ctx_info info{};
            info.h = KEEL_HEADER(keel_ctx_info);
            REQUIRE(c->ctx_info(c.get(), &info) == KEEL_OK);
            CHECK(std::string(info.description) ==
                  v.word + ", 2 threads, compute exact, prefetch " + prefetch);
            const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 1, 515),
                              w = c.tensor(KEEL_DTYPE_F32, 9, 515),
                              out = c.tensor(KEEL_DTYPE_F32, 1, 9);
            std::vector<float> values(9 * 515);
            for (size_t i = 0; i < values.size(); ++i)
                values[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
            c.write(w, values);
            c.write(x, std::vector<float>(values.begin() + 100, values.begin() + 615));
            keel_matmul_args a = matmul_args(x, w, out);
            REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
            products.push_back(c.read<float>(out));
        }
        CHECK(products[0] == products[1]);
        CHECK(products[0][0] != 0.0F);
    }
}

TEST_CASE("an instruction set that the machine lacks is refused by name, with the available ones") {
    bool lacking = false;
    for (const char *isa : isa_names) {
        keel_ctx *ctx;
        const keel_status status = open(cpu_backend(), isa, "fast", 1, ctx);
        cpu_backend().ctx_destroy(ctx);
        if (status == KEEL_OK) continue;
        lacking = true;
        CHECK(status == KEEL_E_UNSUPPORTED);
        const auto error = HostServices::take_error();
        REQUIRE(error);
        CHECK(error->message.find(isa) != std::string::npos);
        CHECK(error->message.find("this machine has scalar") != std::string::npos);
    }
    CHECK(lacking); // no machine has the sets of two architectures
}

TEST_CASE("a word that is not an instruction set is refused") {
    keel_ctx *ctx;
    CHECK(open(cpu_backend(), "avx10", "fast", 1, ctx) == KEEL_E_INVALID_ARG);
    CHECK(ctx == nullptr);
}

TEST_CASE("feature bits that an op does not know are refused without side effects") {
    Context c(variants().front(), "exact");
    const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 1, 4), w = c.tensor(KEEL_DTYPE_F32, 2, 4),
                      out = c.tensor(KEEL_DTYPE_F32, 1, 2);
    c.write<float>(x, {1, 1, 1, 1});
    c.write<float>(w, {1, 2, 3, 4, 5, 6, 7, 8});
    c.write<float>(out, {-1, -2});
    keel_matmul_args a = matmul_args(x, w, out);
    a.features = 1ull << 40;
    CHECK(c->matmul(c.get(), &a) == KEEL_E_UNSUPPORTED);
    CHECK(c.read<float>(out) == std::vector<float>{-1, -2});
    a.features = 0;
    CHECK(c->matmul(c.get(), &a) == KEEL_OK);
    CHECK(c.read<float>(out) == std::vector<float>{10, 26});
}

TEST_CASE("tickets rise, and an unknown ticket is refused") {
    Context c(variants().front(), "exact");
    uint64_t first = 0, second = 0;
    CHECK(c->wait(c.get(), 1) == KEEL_E_INVALID_ARG);
    REQUIRE(c->flush(c.get(), &first) == KEEL_OK);
    REQUIRE(c->flush(c.get(), &second) == KEEL_OK);
    CHECK(second > first);
    CHECK(c->wait(c.get(), first) == KEEL_OK);
    CHECK(c->poll(c.get(), second) == KEEL_OK);
    CHECK(c->wait(c.get(), second + 1) == KEEL_E_INVALID_ARG);
}
