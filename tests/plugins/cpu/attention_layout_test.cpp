// Tests of the scratch memory that attention needs.
#include "cpu/attention/job.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace keel_cpu;

TEST_CASE("the planned scratch memory is enough for fewer queries and fewer slots") {
    std::mt19937 random(1);
    const auto one_of = [&](const std::vector<int64_t> &values) {
        return values[random() % values.size()];
    };
    for (int i = 0; i < 50000; ++i) {
        AttentionSize size = {one_of({1, 2, 3, 4, 8, 32, 40}),
                              one_of({1, 2, 3, 4, 5, 7, 8, 16, 40, 130}),
                              one_of({2, 3, 5, 16, 32, 70, 128, 400, 512, 2048}),
                              one_of({40, 64, 128}),
                              one_of({40, 64, 128}),
                              static_cast<uint32_t>(one_of({1, 2, 5, 8, 64}))};
        const int64_t step = one_of({0, 24, 32}), least = step == 24 ? 3 : 5,
                      window = one_of({0, 1, 2, 32, 300}),
                      slots = one_of({64, 512, 2048, 2300, 8192, 21845, 32768, 131072});
        const bool apart = random() % 2 == 0;
        const auto total = [&](int64_t m, int64_t n) {
            AttentionSize s = size;
            s.m = m;
            s.bf16_step = step;
            s.in_bf16 = step != 0 && m * s.group >= least;
            s.scoring = Scoring::several;
            s.contributing = window == 0 || window > m ? m : window;
            s.slots = n;
            s.sums = apart ? s.heads * s.group : s.heads;
            return attention_layout(s).total;
        };
        const int64_t fewer = random() % 2 == 0 ? size.m
                                                : 2 + static_cast<int64_t>(random()) % (size.m - 1),
                      shorter =
                          random() % 3 == 0 ? slots : static_cast<int64_t>(random()) % (slots + 1);
        INFO(size.heads << " heads of " << size.group << ", " << size.m << " to " << fewer
                        << " queries, " << slots << " to " << shorter << " slots, step " << step
                        << ", window " << window);
        REQUIRE(total(fewer, shorter) <= total(size.m, slots));
    }
}
