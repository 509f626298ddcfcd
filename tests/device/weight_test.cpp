#include "device/weight.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Two f32 sources of shape [2, 3]. `made` counts how often their data was made. `alive` is the
// memory of the data.
struct Sources {
    std::shared_ptr<std::vector<float>> first =
        std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
    int made = 0;
    std::weak_ptr<std::vector<float>> alive;

    WeightSource of(std::vector<float> values, int64_t rows, int64_t cols) {
        auto memory = std::make_shared<std::vector<float>>(std::move(values));
        alive = memory;
        WeightSource s;
        s.mapping = memory->data();
        s.mapping_bytes = memory->size() * 4;
        s.dtype = KEEL_DTYPE_F32;
        s.rows = rows;
        s.cols = cols;
        s.keep_alive = memory;
        return s;
    }
    Weight::Sources pair() {
        return [this] {
            ++made;
            return std::vector<WeightSource>{of({1, 2, 3, 4, 5, 6}, 2, 3),
                                             of({-1, -2, -3, -4, -5, -6}, 2, 3)};
        };
    }
    Weight::Sources single() {
        return [this] {
            ++made;
            return std::vector<WeightSource>{of({1, 2, 3, 4, 5, 6}, 2, 3)};
        };
    }
};

std::vector<float> rows_of(const Weight &weight, Device &device) {
    const keel_tensor *t = weight.tensor(device);
    REQUIRE(t != nullptr);
    CHECK(weight.handle(device) == nullptr);
    std::vector<float> values(12);
    device.find(t->buffer)->read(t->offset, values.data(), 48);
    return values;
}

const std::vector<float> by_rows = {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6};
const std::vector<float> interleaved = {1, 2, 3, -1, -2, -3, 4, 5, 6, -4, -5, -6};

} // namespace

TEST_CASE("a backend that prepares weights returns a handle, and the sources are released") {
    WrappingBackend w;
    const auto device = w.open();
    Sources sources;
    {
        Weight weight("ffn", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_ROWS, KEEL_USE_MATMUL,
                      8);
        CHECK_FALSE(weight.is_ready(*device));
        weight.prepare(*device);
        weight.prepare(*device);
        CHECK(w.count("weight_prepare") == 1);
        CHECK(weight.handle(*device) != nullptr);
        CHECK(weight.tensor(*device) == nullptr);
        CHECK(weight.bytes(*device) == 48);
        CHECK(weight.layout(*device) == "f32, joined");
        CHECK_FALSE(weight.sources_needed());
        CHECK(sources.alive.expired());
    }
    CHECK(w.live().weights == 0);
}

TEST_CASE("sources that a backend reads in place exist as long as the weight") {
    WrappingBackend w;
    const auto device = w.open();
    Sources sources;
    {
        Weight weight("ffn", KEEL_DTYPE_F32, 2, 3, sources.single(), KEEL_JOIN_ROWS,
                      KEEL_USE_MATMUL, 8);
        weight.prepare(*device);
        CHECK(weight.sources_needed());
        CHECK_FALSE(sources.alive.expired());
    }
    CHECK(sources.alive.expired());
}

TEST_CASE("if a backend does not prepare weights, the rows are joined in a buffer") {
    for (const bool refused : {true, false}) {
        WrappingBackend w;
        w.asynchronous = true;
        if (!refused) w.hide("weight_prepare");
        const auto device = w.open();
        Sources sources;
        Weight a("a", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_ROWS, KEEL_USE_MATMUL, 8);
        Weight b("b", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_INTERLEAVE, KEEL_USE_MATMUL,
                 8);
        if (refused) w.fail_nth(1, KEEL_E_UNSUPPORTED, "weight_prepare");
        a.prepare(*device);
        if (refused) w.fail_nth(1, KEEL_E_UNSUPPORTED, "weight_prepare");
        b.prepare(*device);
        CHECK(sources.alive.expired()); // a write copies its source
        CHECK(rows_of(a, *device) == by_rows);
        CHECK(rows_of(b, *device) == interleaved);
        CHECK(a.bytes(*device) == 48);
        CHECK(a.layout(*device) == "f32, rows as in the file");
    }
}

TEST_CASE("a weight can be prepared later on a second device, with new sources") {
    WrappingBackend w, second;
    second.hide("weight_prepare");
    const auto device = w.open(), other = second.open();
    Sources sources;
    {
        Weight weight("ffn", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_INTERLEAVE,
                      KEEL_USE_MATMUL, 8);
        weight.prepare(*device);
        CHECK(sources.made == 1);
        weight.prepare(*other);
        CHECK(sources.made == 2);
        CHECK(rows_of(weight, *other) == interleaved);
        CHECK(weight.handle(*device) != nullptr);
        CHECK(sources.alive.expired());
        CHECK(weight.shape()->shape[0] == 4);
    }
    CHECK(w.live().weights == 0);
    Sources kept;
    Weight in_place("one", KEEL_DTYPE_F32, 2, 3, kept.single(), KEEL_JOIN_ROWS, KEEL_USE_MATMUL, 8);
    in_place.prepare(*device);
    in_place.prepare(*other);
    CHECK(kept.made == 1); // the first device still holds the data
}

TEST_CASE("a weight that cannot be prepared is reported with its name, and leaves no memory") {
    Sources sources;
    for (const char *slot : {"weight_prepare", "weight_info"}) {
        WrappingBackend w;
        const auto device = w.open();
        Weight weight("layer 3: ffn", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_ROWS,
                      KEEL_USE_MATMUL, 8);
        w.fail_nth(1, KEEL_E_INTERNAL, slot);
        CHECK_THAT(error_text([&] { weight.prepare(*device); }, ErrorKind::runtime),
                   Contains("backend wrapping: weight layer 3: ffn") &&
                       Contains(std::string("injected into ") + slot));
        CHECK(w.live().weights == 0);
        CHECK_FALSE(weight.is_ready(*device));
        CHECK(sources.alive.expired());
        weight.prepare(*device); // the next try succeeds
        CHECK(weight.is_ready(*device));
    }
}

TEST_CASE("sources that do not match each other or their mapping are refused before the backend "
          "gets them") {
    WrappingBackend w;
    const auto device = w.open();
    w.clear_calls();
    Sources sources;
    const auto refused = [&](const std::function<void(std::vector<WeightSource> &)> &spoil,
                             keel_join join = KEEL_JOIN_ROWS) {
        Weight weight(
            "bad", KEEL_DTYPE_F32, 4, 3,
            [&] {
                auto made = sources.pair()();
                spoil(made);
                return made;
            },
            join, KEEL_USE_MATMUL, 8);
        CHECK_THAT(error_text([&] { weight.prepare(*device); }, ErrorKind::internal),
                   Contains("weight bad"));
        CHECK_FALSE(weight.is_ready(*device));
    };
    using S = std::vector<WeightSource>;
    refused([](S &s) { s.clear(); });
    refused([](S &s) { s[0].rows = 1; });
    refused([](S &s) { s[0].rows = -2; });
    refused([](S &s) { s[0].rows = INT64_MAX; });
    refused([](S &s) { s[0].cols = 2; });
    refused([](S &s) { s[0].dtype = KEEL_DTYPE_F16; });
    refused([](S &s) { s[0].offset = 4; });
    refused([](S &s) { s[0].offset = UINT64_MAX; });
    refused([](S &s) { s[0].mapping_bytes = 23; });
    refused([](S &s) { s[0].mapping = nullptr; });
    refused([](S &s) { s[0].rows = 1, s[1].rows = 3; }, KEEL_JOIN_INTERLEAVE);
    CHECK(w.calls().empty());
}

TEST_CASE("if there is no memory for a weight, the pool is emptied and it is tried again") {
    WrappingBackend w;
    const auto device = w.open();
    device->allocate(4096); // the memory is free, and stays in the pool
    Sources sources;
    Weight weight("ffn", KEEL_DTYPE_F32, 4, 3, sources.pair(), KEEL_JOIN_ROWS, KEEL_USE_MATMUL, 8);
    w.fail_nth(1, KEEL_E_OUT_OF_MEMORY, "weight_prepare");
    weight.prepare(*device);
    CHECK(w.count("weight_prepare") == 2);
    CHECK(w.count("buffer_destroy") == 1);
}
