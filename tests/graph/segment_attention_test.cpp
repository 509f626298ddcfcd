// Tests when one call computes the attention of all sequences of a step, and when each sequence
// needs its own call.
#include "graph/segment_attention.hpp"

#include "graph/step_rig.hpp"
#include "kv/store/batch_view.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <optional>

using namespace keel;
using namespace keel::test;

namespace {

// A keel.batched_decode/1 that computes nothing and counts its calls.
struct FakeBatchedDecode {
    int prepared = 0, appended = 0, attended = 0;
    int refuse_from = 1000; // the number of the first prepare() that is refused

    static FakeBatchedDecode *&current() {
        static FakeBatchedDecode *fake = nullptr;
        return fake;
    }
    static const keel_batched_decode *table() {
        static const keel_batched_decode table = [] {
            keel_batched_decode t = {KEEL_HEADER(keel_batched_decode)};
            t.prepare = [](keel_ctx *, const keel_qkv_args *, const keel_attention_args *,
                           const keel_batch_kv *) -> keel_status {
                FakeBatchedDecode &fake = *current();
                return ++fake.prepared >= fake.refuse_from ? KEEL_E_UNSUPPORTED : KEEL_OK;
            };
            t.qkv_prepare = [](keel_ctx *, const keel_qkv_args *,
                               const keel_batch_kv *) -> keel_status {
                ++current()->appended;
                return KEEL_OK;
            };
            t.attention = [](keel_ctx *, const keel_attention_args *,
                             const keel_batch_kv *) -> keel_status {
                ++current()->attended;
                return KEEL_OK;
            };
            return t;
        }();
        return &table;
    }
    std::shared_ptr<Device> open(WrappingBackend &backend) {
        current() = this;
        DeviceSpec spec = backend.spec();
        spec.extension = [](const char *id) -> const void * {
            return std::string_view(id) == KEEL_EXT_BATCHED_DECODE ? table() : nullptr;
        };
        return Device::open(std::move(spec));
    }
};

// A SegmentAttention for a miniature model, with three sequences.
struct AttentionRig {
    static constexpr uint32_t most_tokens = 8;
    static constexpr int64_t rope_rows = 64;

    explicit AttentionRig(const std::string &model = "llama_biases")
        : rig(miniature_folder(model, false), fake.open(backend)), decoder(rig.weights, rope_rows),
          workspace(rig.weights.config(), KEEL_DTYPE_F32, most_tokens, 0),
          decode(rig.executor, decoder, workspace, StepForm::decode, {1, 0},
                 rig.kv_template.view()),
          prefill(rig.executor, decoder, workspace, StepForm::prefill, {most_tokens, 0},
                  rig.kv_template.view()),
          attention(rig.executor, decoder, workspace, decode, prefill),
          batch(rig.shape, StepRig::sequences) {
        workspace.allocate(rig.executor.device(), rig.executor.placement());
        decoder.ropes().place(rig.executor.device(), rig.executor.placement());
        together.assign(decoder.layers(), batch.view());
        rig.executor.set_observer([this](const PlannedOp &op, const keel_op_args *, bool after) {
            if (after) ran.push_back(op.tag());
        });
    }
    ~AttentionRig() { rig.executor.set_observer({}); }

    void settle() {
        fake.prepared = 0;
        attention.settle_together(StepRig::sequences, *batch.view());
    }
    // Returns a segment with the next tokens of a sequence. `at` is the position of the first
    // token.
    Segment segment(size_t sequence, int64_t tokens = 1, int32_t at = 0) {
        positions[sequence].clear();
        for (int32_t i = 0; i < tokens; ++i) positions[sequence].push_back(at + i);
        rig.caches[sequence]->append(positions[sequence], tokens);
        return {.positions = positions[sequence], .kv = rig.caches[sequence]->views()};
    }
    // Runs the attention of the first layer. Returns true if one call computed several sequences.
    bool runs_together(const std::vector<Segment> &segments) {
        fake.appended = fake.attended = 0;
        ran.clear();
        const size_t first = plain_decodes(segments);
        attention.begin(segments, {together, first});
        attention.run(0);
        CHECK(fake.appended == fake.attended);
        // Two ops of each segment that the call did not serve.
        CHECK(ran.size() == 2 * (segments.size() - (fake.attended == 1 ? first : 0)));
        return fake.attended == 1;
    }

    WrappingBackend backend;
    FakeBatchedDecode fake;
    StepRig rig;
    Decoder decoder;
    Workspace workspace;
    StepProgram decode, prefill;
    SegmentAttention attention;
    BatchTemplate batch;
    std::vector<const keel_batch_kv *> together; // [layers]
    std::array<std::vector<int32_t>, StepRig::sequences> positions;
    std::vector<OpTag> ran;
};

} // namespace

TEST_CASE("each sequence attends alone until the backend has accepted the batch") {
    AttentionRig r;
    CHECK_FALSE(r.attention.can_attend_together());
    CHECK_FALSE(r.runs_together({r.segment(0), r.segment(1)}));
    r.settle();
    CHECK(r.fake.prepared == 1); // all layers have the same shapes
    CHECK(r.attention.can_attend_together());
    CHECK(r.runs_together({r.segment(0, 1, 1), r.segment(1, 1, 1)}));
}

TEST_CASE("layers with and without a window are both offered to the backend") {
    AttentionRig r("gemma3");
    bool has_window = false, has_none = false;
    for (size_t l = 0; l < r.decoder.layers(); ++l)
        (r.decoder.window(l) > 0 ? has_window : has_none) = true;
    REQUIRE((has_window && has_none));
    r.settle();
    CHECK(r.fake.prepared >= 2);
    CHECK(r.attention.can_attend_together());
    r.fake.refuse_from = 2; // only the first kind is accepted
    r.settle();
    CHECK_FALSE(r.attention.can_attend_together());
}

TEST_CASE("one call serves sequences with one token each whose policies collect nothing") {
    AttentionRig r;
    r.settle();
    CHECK(r.runs_together({r.segment(0), r.segment(1), r.segment(2)}));
    CHECK_FALSE(r.runs_together({r.segment(0, 1, 1)})); // only one sequence
    // a segment of two tokens
    CHECK_FALSE(r.runs_together({r.segment(0, 1, 2), r.segment(1, 2, 1)}));
    WantsAll tap(r.rig.executor.device(), r.decoder.config(), 1, r.rig.shape.max_slots);
    std::vector<Segment> tapped = {r.segment(0, 1, 3), r.segment(1, 1, 3)};
    tapped[1].tap = &tap;
    tapped[1].tap_ops = &r.rig.graph.taps();
    CHECK_FALSE(r.runs_together(tapped));
    tapped = {r.segment(0, 1, 4), r.segment(1, 1, 4), r.segment(2, 3, 1)};
    CHECK(r.runs_together(tapped)); // a chunk of a prompt follows in a call of its own
    r.together.clear();             // the caches have no common view
    CHECK_FALSE(r.runs_together({r.segment(0, 1, 5), r.segment(1, 1, 5)}));
}

TEST_CASE("sequences whose positions share a row of the RoPE tables attend one by one") {
    AttentionRig r;
    r.settle();
    CHECK_FALSE(r.runs_together({r.segment(0, 1, 3), r.segment(1, 1, 3 + 64)}));
    CHECK(r.runs_together({r.segment(0, 1, 4), r.segment(1, 1, 5 + 64)}));
    // the same row and the same position
    CHECK(r.runs_together({r.segment(0, 1, 5), r.segment(1, 1, 5)}));
}

TEST_CASE("a segment of one token runs the ops of decode, and a longer one those of prefill") {
    AttentionRig r;
    r.runs_together({r.segment(0, 1), r.segment(1, 3)});
    REQUIRE(r.ran.size() == 4); // qkv_prepare and attention of each sequence
    for (size_t i = 0; i < 4; ++i) {
        CHECK(r.ran[i].form == (i < 2 ? StepForm::decode : StepForm::prefill));
        CHECK(r.ran[i].role == (i % 2 == 0 ? Role::qkv_prepare : Role::attention));
    }
}
