// Tests of the order in which workers get the tasks of an op (plugins/cpu/ops/task_ranges.hpp).
#include "cpu/ops/task_ranges.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using keel_cpu::TaskRanges;

TEST_CASE(
    "tasks: a worker gets neighbours, and an idle one takes the last task of the longest range",
    "[cpu][tasks]") {
    TaskRanges tasks(10, 2);
    CHECK(tasks.take(1) == 5);
    for (int64_t expected : {0, 1, 2, 3, 4}) CHECK(tasks.take(0) == expected);
    CHECK(tasks.take(0) == 9);
    CHECK(tasks.take(1) == 6);
    CHECK(tasks.take(0) == 8);
    CHECK(tasks.take(1) == 7);
    CHECK(tasks.take(0) == -1);
    CHECK(tasks.take(1) == -1);
}

TEST_CASE("tasks: there may be none, fewer than workers, and more workers than ranges",
          "[cpu][tasks]") {
    TaskRanges none(0, 2);
    CHECK(none.take(0) == -1);
    CHECK(none.take(1) == -1);

    TaskRanges one(1, 4);
    CHECK(one.take(1) == 0);
    CHECK(one.take(3) == -1);

    TaskRanges alone(3, 1);
    for (int64_t expected : {0, 1, 2, -1}) CHECK(alone.take(0) == expected);

    TaskRanges many(1000, 300); // some workers share a range
    std::vector<int> taken(1000);
    for (uint32_t worker = 0;; worker = (worker + 7) % 300) {
        const int64_t task = many.take(worker);
        if (task < 0) break;
        ++taken[static_cast<size_t>(task)];
    }
    CHECK(taken == std::vector<int>(1000, 1));
}

TEST_CASE("tasks: with several threads each task is taken exactly once", "[cpu][tasks]") {
    constexpr int64_t n = 20000;
    constexpr uint32_t workers = 4;
    TaskRanges tasks(n, workers);
    std::vector<std::atomic<int>> taken(n);
    std::vector<std::thread> threads;
    for (uint32_t w = 0; w < workers; ++w)
        threads.emplace_back([&, w] {
            for (int64_t task; (task = tasks.take(w)) >= 0;)
                taken[static_cast<size_t>(task)].fetch_add(1);
        });
    for (std::thread &t : threads) t.join();
    int wrong = 0;
    for (const auto &times : taken) wrong += times.load() != 1;
    CHECK(wrong == 0);
}
