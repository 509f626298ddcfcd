// Tests of scores that attention computes as a by-product: results that must not depend on the
// reduction or on the division of the work.
#include "attention_rig.hpp"

using namespace keel;
using namespace keel::test;

TEST_CASE("scores of several queries use the products of attention, for all reductions") {
    const CacheShape shape =
        cache_of({500, 230}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0); // these rows form wide tiles
    const struct {
        keel_reduce queries, group;
        uint32_t counting;
    } forms[] = {{KEEL_REDUCE_SUM, KEEL_REDUCE_NONE, 0},  {KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX, 33},
                 {KEEL_REDUCE_MAX, KEEL_REDUCE_MAX, 0},   {KEEL_REDUCE_MAX, KEEL_REDUCE_SUM, 150},
                 {KEEL_REDUCE_MEAN, KEEL_REDUCE_MEAN, 1}, {KEEL_REDUCE_SUM, KEEL_REDUCE_SUM, 64}};
    for (const auto &form : forms) {
        INFO("queries " << form.queries << ", group " << form.group << ", the last "
                        << form.counting);
        Call wide(shape, 230, 7);
        wide.score_by(form.queries, form.group, form.counting);
        compare_with_reference(wide);
        Call few(cache_of({300, 70}, 16, KEEL_DTYPE_BF16, KEEL_DTYPE_F16), 70, 3);
        few.score_by(form.queries, form.group, form.counting);
        compare_with_reference(few);
    }
}

TEST_CASE("a query whose logits are NaN changes only the scores of the slots that it sees") {
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MAX})
        for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16}) {
            Call call(cache_of({200}, 64, dtype, dtype), 90, 4);
            Tensor &q = call.scene.tensors[call.q];
            std::vector<double> values = q.values();
            values[static_cast<size_t>(17 * 4 * 64)] = NAN; // query 17 sees slots up to 127
            q.set({values.begin(), values.end()});
            call.score_by(queries, KEEL_REDUCE_SUM, 0);
            compare_with_reference(call);
            Side side(cpu_library(), {});
            Stage stage(side, call.scene, {});
            REQUIRE(call.run(stage) == KEEL_OK);
            const std::vector<double> scores = call.values(stage, call.scores);
            CHECK(std::isnan(scores[127]));
            CHECK(std::isfinite(scores[128]));
        }
}

TEST_CASE(
    "scores do not depend on the number of threads, bit for bit, if only some rows are kept") {
    for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_F32}) {
        const bool rounded = dtype == KEEL_DTYPE_F16;
        CacheShape shape = cache_of({rounded ? 4500 : 12000}, 256, dtype, dtype);
        shape.head_dim = shape.v_head_dim = 16;
        Call call(shape, rounded ? 400 : 30, 8);
        call.score_by(rounded ? KEEL_REDUCE_SUM : KEEL_REDUCE_MAX, KEEL_REDUCE_MEAN,
                      rounded ? 350 : 0);
        for (const Variant &v : variants())
            if (rounded ? v.rounds() : v.isa == "avx2" || v.isa == "neon")
                compare_threads(*v.library, {{"isa", v.isa}}, call);
    }
}

TEST_CASE("scores under a model's window do not depend on the number of threads, bit for bit") {
    for (const int64_t m : {1, 230}) {
        Call call(cache_of({0, 610, 610}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), m, 8,
                  KEEL_ATTENTION_WINDOW);
        Tensor &t = call.scene.tensors[call.scene.caches[call.cache].positions];
        std::vector<int32_t> positions;
        for (int64_t j = 0; j < t.elements(); ++j)
            positions.push_back(static_cast<int32_t>(j % 610));
        t.set_integers(positions);
        std::vector<int32_t> at;
        for (int64_t i = 0; i < m; ++i) at.push_back(static_cast<int32_t>(610 - m + i));
        call.scene.tensors[call.positions].set_integers(at);
        call.window = 100;
        for (const bool number : {true, false}) { // false: the query is NaN
            if (!number) {
                Tensor &q = call.scene.tensors[call.q];
                std::vector<double> values = q.values();
                values[static_cast<size_t>((m - 1) * 24 * 64 + 8 * 64)] = NAN;
                q.set({values.begin(), values.end()});
            }
            compare_with_reference(call);
            compare_threads(cpu_library(), {}, call);
        }
    }
}
