// Tests of plugin parameters that do not depend on the instruction set: prefetch, copy, and unknown
// words.
#include "cpu_fixture.hpp"

#include "base/log_sinks.hpp"

#include <spdlog/sinks/ostream_sink.h>

#include <random>
#include <sstream>
#include <unistd.h>

using namespace keel;
using namespace keel::test;

namespace {

constexpr keel_dtype weight_dtypes[] = {KEEL_DTYPE_F32,  KEEL_DTYPE_F16,  KEEL_DTYPE_BF16,
                                        KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q4_K,
                                        KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K};

// A weight of two joined matrices. Each 16-bit half of a number is small, so the values are small
// in every dtype.
struct Weight {
    Context &context;
    std::vector<uint8_t> file;
    keel_weight *weight = nullptr;

    Weight(Context &c, keel_dtype dtype, int64_t rows, int64_t cols, uint32_t use = KEEL_USE_MATMUL)
        : context(c) {
        const uint64_t bytes =
            static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols));
        file.resize(2 * bytes);
        std::mt19937 random(3);
        for (size_t i = 0; i < file.size(); ++i)
            file[i] = i % 2 == 0 ? static_cast<uint8_t>(random()) : 0x2c;
        keel_weight_source sources[2];
        const keel_weight_source *list[] = {&sources[0], &sources[1]};
        for (uint64_t i = 0; i < 2; ++i)
            sources[i] = {KEEL_HEADER(keel_weight_source),
                          file.data(),
                          file.size(),
                          i * bytes,
                          dtype,
                          0,
                          rows,
                          cols};
        const keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc), list, 2,
                                       KEEL_JOIN_INTERLEAVE,          use,  512};
        REQUIRE(c->weight_prepare(c.get(), &desc, &weight) == KEEL_OK);
    }
    keel_weight_info info() const {
        keel_weight_info facts{};
        facts.h = KEEL_HEADER(keel_weight_info);
        REQUIRE(context->weight_info(context.get(), weight, &facts) == KEEL_OK);
        return facts;
    }
    bool is_copied() const {
        return std::string(info().layout).find("copied") != std::string::npos;
    }
    Weight(const Weight &) = delete;
    ~Weight() { context->weight_destroy(context.get(), weight); }
};

std::vector<float> product(Context &c, const Weight &w, int64_t m, int64_t n, int64_t k) {
    std::vector<float> values(static_cast<size_t>(m * k));
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
    const keel_tensor x = c.tensor(KEEL_DTYPE_F32, m, k), out = c.tensor(KEEL_DTYPE_F32, m, n);
    c.write(x, values);
    keel_matmul_args a = matmul_args(x, x, out);
    a.w = nullptr, a.weight = w.weight;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(out);
}

// Collects the log messages while this object exists.
class Heard {
  public:
    Heard() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
        spdlog_logger().sinks().push_back(sink_);
    }
    Heard(const Heard &) = delete;
    ~Heard() { spdlog_logger().sinks().pop_back(); }
    std::string text() const { return text_.str(); }

  private:
    std::ostringstream text_;
    std::shared_ptr<spdlog::sinks::sink> sink_;
};

// Prepares a weight of twice the machine's memory, for which no copy fits. Its bytes are read only
// if it is copied.
keel_status prepare_huge(Context &c, keel_weight *&w) {
    const int64_t cols = 4096, row_bytes = 2 * cols,
                  rows = 2 * int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / row_bytes;
    static const uint8_t nothing[64] = {};
    const keel_weight_source source = {KEEL_HEADER(keel_weight_source),
                                       nothing,
                                       static_cast<uint64_t>(rows * row_bytes),
                                       0,
                                       KEEL_DTYPE_F16,
                                       0,
                                       rows,
                                       cols};
    const keel_weight_source *list[] = {&source};
    const keel_weight_desc desc = {
        KEEL_HEADER(keel_weight_desc), list, 1, KEEL_JOIN_ROWS, KEEL_USE_MATMUL, 1};
    return c->weight_prepare(c.get(), &desc, &w);
}

} // namespace

TEST_CASE("an unknown value of a parameter is refused with the allowed values") {
    const auto error_of = [](const std::string &compute, const std::string &prefetch,
                             const std::string &copy) {
        keel_ctx *ctx;
        CHECK(open(cpu_backend(), "scalar", compute, 1, ctx, prefetch, copy) == KEEL_E_INVALID_ARG);
        CHECK(ctx == nullptr);
        const auto error = HostServices::take_error();
        return error ? error->message : std::string();
    };
    CHECK(error_of("quick", "auto", "auto") ==
          "compute: unknown value 'quick'; use one of fast, exact");
    CHECK(error_of("fast", "yes", "auto") ==
          "prefetch: unknown value 'yes'; use one of auto, on, off");
    CHECK(error_of("exact", "off", "no") == "copy: unknown value 'no'; use one of auto, on, off");
}

TEST_CASE("copy: auto copies 16-bit weights of 1 MiB and more, and off copies none") {
    const Heard heard;
    const Variant v = variants().front();
    for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_BF16}) {
        Context automatic(v, "fast"), off(v, "fast", 2, "auto", "off");
        // Two sources of 512 rows of 1 KiB have 1 MiB. With 511 rows they have less.
        CHECK(Weight(automatic, dtype, 512, 512).is_copied());
        CHECK_FALSE(Weight(automatic, dtype, 511, 512).is_copied());
        CHECK_FALSE(Weight(automatic, dtype, 512, 512, KEEL_USE_EMBED).is_copied());
        const Weight kept(off, dtype, 512, 512);
        CHECK_FALSE(kept.is_copied());
        CHECK(kept.info().source_needed == 1);
    }
    CHECK(heard.text() == "");
}

TEST_CASE("copy: auto warns once if memory is short, and copies nothing from then on") {
    const Heard heard;
    Context c(variants().front(), "fast");
    for (int i = 0; i < 2; ++i) {
        keel_weight *w = nullptr;
        REQUIRE(prepare_huge(c, w) == KEEL_OK);
        c->weight_destroy(c.get(), w);
    }
    const std::string text = heard.text(),
                      warning = "copy: auto: from now on 16-bit weights are not copied";
    CHECK(text.find(warning) != std::string::npos);
    CHECK(text.find("less than an eighth of memory would stay free") != std::string::npos);
    CHECK(text.find(warning) == text.rfind(warning));
    CHECK_FALSE(Weight(c, KEEL_DTYPE_F16, 512, 512).is_copied());
}

TEST_CASE("prefetch changes no product of any type, for few rows and for many") {
    for (const Variant &v : variants())
        for (const keel_dtype dtype : weight_dtypes) {
            INFO(v.word << ' ' << keel_dtype_name(dtype));
            const int64_t rows = 19, cols = 512;
            Context on(v, "fast", 2, "on"), off(v, "fast", 2, "off");
            const Weight with(on, dtype, rows, cols), without(off, dtype, rows, cols);
            for (const int64_t m : {1, 3, 7, 11, 24}) {
                const std::vector<float> y = product(on, with, m, 2 * rows, cols);
                CHECK(y == product(off, without, m, 2 * rows, cols));
                CHECK(y[0] != 0.0F);
            }
        }
}
