// Tests that planning, running, explaining, recording and tracing use the same ops of a step.
#include "device/trace.hpp"
#include "graph/step_rig.hpp"
#include "ops/explain.hpp"
#include "support/temp_folder.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

using namespace keel;
using namespace keel::test;

namespace {

struct Form {
    const char *name;
    StepForm form;
    std::function<void(StepRig &)> step;
};

const std::vector<Form> forms = {
    {"prefill", StepForm::prefill, [](StepRig &rig) { rig.prefill(2); }},
    {"tapped prefill", StepForm::prefill, [](StepRig &rig) { rig.prefill(2, true); }},
    {"decode", StepForm::decode, [](StepRig &rig) { rig.decode(); }},
    {"tapped decode", StepForm::decode, [](StepRig &rig) { rig.decode(true); }},
    {"batch", StepForm::batch, [](StepRig &rig) { rig.decode_batch(); }},
    {"tapped batch", StepForm::batch, [](StepRig &rig) { rig.decode_batch(true); }},
};

std::shared_ptr<Device> reference() {
    return Device::open_reference(std::make_shared<HostServices>(1));
}

std::vector<OpTag> tags_of(const std::vector<const PlannedOp *> &ops) {
    std::vector<OpTag> tags;
    for (const PlannedOp *op : ops) tags.push_back(op->tag());
    return tags;
}

Role plain(Role role) {
    if (role == Role::tapped_qkv_prepare) return Role::qkv_prepare;
    return role == Role::tapped_attention ? Role::attention : role;
}

// Returns the planned ops for the ops that ran. A tapped op becomes the plain op that it replaces.
// In a batch, attention is left out, because it uses the ops of decode steps.
std::vector<OpTag> as_planned(std::vector<OpTag> ran, StepForm form) {
    for (OpTag &tag : ran) tag.role = plain(tag.role);
    std::erase_if(ran, [&](const OpTag &tag) { return tag.form != form; });
    return ran;
}

std::vector<std::string> labels_of(const std::vector<OpTag> &tags) {
    std::vector<std::string> labels;
    for (const OpTag &tag : tags) labels.push_back(label_text(tag));
    return labels;
}

// Returns the labels of the ops in a trace, in their order.
std::vector<std::string> traced(const std::filesystem::path &file) {
    std::ifstream in(file);
    const nlohmann::json json = nlohmann::json::parse(in);
    std::vector<std::string> labels;
    for (const auto &event : json.at("traceEvents")) {
        if (event.value("cat", "") == "op") labels.push_back(event.at("args").at("label"));
    }
    return labels;
}

std::vector<std::filesystem::path> reader_models() {
    return {miniature_folder("llama_biases", true), miniature_folder("gemma3", false)};
}

} // namespace

TEST_CASE("for each form of a step, the ops that run are the planned and explained ones") {
    for (const auto &model : reader_models()) {
        for (const Form &form : forms) {
            INFO(model << ", " << form.name);
            StepRig rig(model, reference());
            rig.ops_of([&] { form.step(rig); });
            const std::vector<const PlannedOp *> planned = rig.graph.ops(form.form);
            CHECK(as_planned(rig.tags(), form.form) == tags_of(planned));
            // In a batch, the attention of each sequence uses the ops of a decode step.
            const std::vector<OpTag> decode = tags_of(rig.graph.ops(StepForm::decode));
            for (OpTag tag : rig.tags()) {
                tag.role = plain(tag.role);
                if (tag.form == form.form) continue;
                CHECK(form.form == StepForm::batch);
                CHECK(std::find(decode.begin(), decode.end(), tag) != decode.end());
            }
            uint64_t explained = 0;
            for (const ExplainRow &row : explain_rows(planned)) explained += row.count;
            CHECK(explained == planned.size());
        }
    }
}

TEST_CASE("for each form of a step, a trace shows the ops that run") {
    const TempFolder folder;
    for (const auto &model : reader_models()) {
        for (const Form &form : forms) {
            INFO(model << ", " << form.name);
            const auto file = folder.path() / fmt::format("{}.json", form.name);
            StepRig rig(model, reference());
            std::vector<std::string> ran;
            {
                Trace trace(file);
                rig.executor.set_trace(&trace);
                rig.ops_of([&] { form.step(rig); });
                rig.executor.set_trace(nullptr);
            }
            CHECK(traced(file) == labels_of(rig.tags()));
            std::filesystem::remove(file);
        }
    }
}

TEST_CASE("a recorded decode step has the planned ops") {
    for (const auto &model : reader_models()) {
        INFO(model);
        WrappingBackend backend;
        backend.records_steps = true;
        StepRig rig(model, backend.open());
        REQUIRE(rig.graph.why_not_recorded().empty());
        const Stream &stream = rig.executor.stream();
        rig.decode();
        for (int i = 0; i < 3; ++i) {
            const uint64_t before = stream.counters().ops;
            rig.decode();
            CHECK(stream.counters().ops - before == rig.graph.ops(StepForm::decode).size());
        }
        CHECK(stream.counters().replays == 3);
    }
}

TEST_CASE("a step with a prompt and decoding sequences gives the logits of separate steps") {
    for (const auto &model : reader_models()) {
        INFO(model);
        StepRig together(model, reference()), apart(model, reference());
        const std::vector<int32_t> prompt = {7, 3, 90, 41}, id = {12};
        const auto vocab = static_cast<size_t>(together.weights.config().vocab_size);
        std::vector<float> wanted, logits(3 * vocab);
        std::vector<std::vector<int32_t>> positions;
        for (StepRig *rig : {&together, &apart}) rig->decode_batch(); // one token of each sequence
        std::vector<Segment> segments;
        for (size_t i = 0; i < StepRig::sequences; ++i)
            positions.push_back(together.append(i, i == 1 ? 4 : 1));
        for (size_t i = 0; i < StepRig::sequences; ++i) {
            Segment s{.positions = positions[i],
                      .kv = together.caches[i]->views(),
                      .ids = i == 1 ? prompt : id,
                      .logit_rows = i == 0 ? 0U : 1U};
            segments.push_back(s);
            apart.append(i, s.tokens());
            s.kv = apart.caches[i]->views();
            apart.graph.forward(s);
            if (s.logit_rows == 0) continue;
            wanted.resize(wanted.size() + vocab);
            apart.graph.next().read_logits(1, wanted.data() + wanted.size() - vocab);
        }
        together.graph.forward(segments);
        together.graph.next().read_logits(2, logits.data());
        logits.resize(2 * vocab);
        CHECK(logits == wanted);
    }
}
