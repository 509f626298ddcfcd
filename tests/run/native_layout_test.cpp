// Files in the layout of a backend (`keel quantize --layout native`): the same model, to the bit.

#include "conformance/k_quantizer.hpp"
#include "convert/gguf_export.hpp"
#include "format/gguf_writer.hpp"
#include "reference/reference.hpp"
#include "run/generate.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const fs::path tiny = KEEL_SOURCE_DIR "/models/tiny";
const std::vector<int32_t> ids{4094, 72, 436, 111, 1034, 44, 315, 311, 32, 49, 265, 3601, 17, 900, 2048};

pipeline::PipelineConfig config_of(const fs::path &model, const std::vector<std::string> &more = {}) {
    std::vector<std::string> sets{"model.path=" + model.string(), "backend.plugin=cpu", "strict=true",
                                  "sampling.temperature=0", "kv.dtype=f32"};
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

std::unique_ptr<Pipeline> pipeline_of(const fs::path &model, const std::vector<std::string> &more = {}) {
    return std::make_unique<Pipeline>(config_of(model, more));
}

std::vector<float> logits(Pipeline &pipeline) {
    Session session(pipeline);
    session.prefill(ids);
    const auto last = session.logits();
    return {last.begin(), last.end()};
}

ExportReport write_native(const fs::path &from, const fs::path &to, keel_dtype type,
                          const std::vector<std::string> &sets = {}) {
    const auto host = std::make_shared<HostServices>();
    ExportOptions options;
    options.type = type;
    options.layout_of = open_device(config_of(from, sets).backend, host);
    return export_gguf(*open_model_source(from), to, options);
}

void write_rows(const fs::path &to, keel_dtype type) {
    ExportOptions options;
    options.type = type;
    export_gguf(*open_model_source(tiny), to, options);
}

// A copy of models/tiny with matrices in K types, v and down in another one, as mixed files have them.
void write_k_quants(const fs::path &f32, const fs::path &to) {
    write_rows(f32, KEEL_DTYPE_F32);
    const GgufFile source(f32);
    GgufWriter out(to);
    for (const GgufEntry &entry : source.entries())
        out.copy(source, entry);
    const auto type = [](const GgufTensor &t) -> std::pair<keel_dtype, uint32_t> {
        if (t.shape.size() != 2) return {KEEL_DTYPE_F32, ggml::f32};
        if (t.name.find("attn_v") != std::string::npos) return {KEEL_DTYPE_Q6_K, ggml::q6_k};
        if (t.name.find("ffn_down") != std::string::npos) return {KEEL_DTYPE_Q5_K, ggml::q5_k};
        return {KEEL_DTYPE_Q4_K, ggml::q4_k};
    };
    for (const GgufTensor &t : source.tensors())
        out.add_tensor(t.name, type(t).second, t.shape);
    out.begin();
    for (const GgufTensor &t : source.tensors()) {
        const auto bytes = source.bytes().subspan(t.offset, t.bytes);
        if (type(t).first == KEEL_DTYPE_F32) {
            out.write(bytes);
            continue;
        }
        std::vector<float> values(t.bytes / sizeof(float));
        std::memcpy(values.data(), bytes.data(), t.bytes);
        std::vector<uint8_t> blocks(keel_dtype_row_bytes(type(t).first, values.size()));
        KQuantizer::quantize(type(t).first, values.data(), values.size(), blocks.data());
        out.write(std::as_bytes(std::span(blocks)));
    }
    out.finish();
}

// A copy of models/tiny with an output matrix of its own: the embedding's, each row in the place of the one before it.
void write_untied(const fs::path &rows, const fs::path &to, keel_dtype type) {
    write_rows(rows, type);
    const GgufFile source(rows);
    GgufWriter out(to);
    for (const GgufEntry &entry : source.entries())
        out.copy(source, entry);
    const GgufTensor *embedding = nullptr;
    for (const GgufTensor &t : source.tensors()) {
        out.add_tensor(t.name, t.type->id, t.shape);
        if (t.name == "token_embd.weight") embedding = &t;
    }
    REQUIRE(embedding != nullptr);
    out.add_tensor("output.weight", embedding->type->id, embedding->shape);
    out.begin();
    for (const GgufTensor &t : source.tensors())
        out.write(source.bytes().subspan(t.offset, t.bytes));
    const uint64_t row = embedding->bytes / static_cast<uint64_t>(embedding->shape[0]);
    std::vector<std::byte> turned(embedding->bytes);
    const auto bytes = source.bytes().subspan(embedding->offset, embedding->bytes);
    std::rotate_copy(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(row), bytes.end(), turned.begin());
    out.write(turned);
    out.finish();
}

uint64_t kept_tensors(const ModelSource &source) {
    uint64_t n = 0;
    for (const TensorInfo &tensor : source.tensors())
        n += source.block(tensor) != nullptr ? 1 : 0;
    return n;
}

} // namespace

TEST_CASE("a file in a backend's layout gives the logits of the file it was made from, to the bit") {
    const TempFolder folder;
    for (const keel_dtype type : {KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q8_0, KEEL_DTYPE_F16, KEEL_DTYPE_F32}) {
        INFO(keel_dtype_name(type));
        const fs::path rows = folder / "rows.gguf", native = folder / "native.gguf",
                       again = folder / "again.gguf";
        write_rows(rows, type);
        const ExportReport report = write_native(rows, native, KEEL_DTYPE_NONE);
        const bool quantized = keel_dtype_block(type) > 1;
        CHECK((report.layout == "rows") == !quantized);
        CHECK(report.relative() == 0);
        CHECK(report.blocks ==
              (quantized ? 25u : 6u)); // else q and k alone, whose rows GGUF has in another order
        const auto a = pipeline_of(rows), b = pipeline_of(native);
        CHECK(kept_tensors(b->source()) == (quantized ? 43u : 0u));
        const std::vector<float> expected = logits(*a);
        CHECK(logits(*b) == expected);
        CHECK(b->weights().dtype_name() == a->weights().dtype_name());
        CHECK(b->weights().bytes_per_token(b->device()) == a->weights().bytes_per_token(a->device()));
        // Nothing is held but what the steps need: weights stay in the file.
        const uint64_t matrices = b->weights().bytes(b->device());
        CHECK(b->device().mem_info().ours + matrices / 2 <
              a->device().mem_info().ours + (quantized ? 0 : matrices));
        // Converted at once from the folder: the same file as by way of rows.
        write_native(tiny, again, type);
        CHECK(logits(*pipeline_of(again)) == expected);
        fs::remove(rows);
        fs::remove(native);
        fs::remove(again);
    }
}

TEST_CASE("a file in a backend's layout keeps an output matrix of its own") {
    const TempFolder folder;
    for (const keel_dtype type : {KEEL_DTYPE_Q4_0, KEEL_DTYPE_F16}) {
        INFO(keel_dtype_name(type));
        const fs::path rows = folder / "rows.gguf", untied = folder / "untied.gguf",
                       native = folder / "native.gguf";
        write_untied(rows, untied, type);
        write_native(untied, native, KEEL_DTYPE_NONE);
        const auto tied = pipeline_of(rows), a = pipeline_of(untied), b = pipeline_of(native);
        CHECK_FALSE(a->source().config().tied_embeddings);
        CHECK_FALSE(b->source().config().tied_embeddings);
        CHECK(b->source().config().vocab_size == a->source().config().vocab_size);
        const std::vector<float> expected = logits(*a), other = logits(*tied);
        CHECK(logits(*b) == expected);
        CHECK(expected != other); // the output matrix is not the embedding
        for (const fs::path &file : {rows, untied, native})
            fs::remove(file);
    }
}

TEST_CASE("matrices of mixed K types are kept run by run, as they are loaded") {
    const TempFolder folder;
    const fs::path rows = folder / "rows.gguf", native = folder / "native.gguf";
    write_k_quants(folder / "f32.gguf", rows);
    CHECK(write_native(rows, native, KEEL_DTYPE_NONE).blocks ==
          1 + 6 * 5); // q with k, v, output, gate with up, down
    const auto a = pipeline_of(rows), b = pipeline_of(native);
    CHECK(b->weights().dtype_name() == "q4_k, q5_k, q6_k");
    CHECK(b->weights().layer(0).qkv.size() == 2);
    CHECK(logits(*b) == logits(*a));
}

TEST_CASE("a file in one instruction set's layout runs on the others") {
    const TempFolder folder;
    const fs::path rows = folder / "rows.gguf", native = folder / "native.gguf";
    write_rows(rows, KEEL_DTYPE_Q4_0);
    const std::string scalar = "backend.params.isa=scalar";
    CHECK(write_native(rows, native, KEEL_DTYPE_NONE, {scalar}).layout == "cpu/interleaved-8/1");
    CHECK(logits(*pipeline_of(native)) == logits(*pipeline_of(rows)));
    CHECK(logits(*pipeline_of(native, {scalar})) == logits(*pipeline_of(rows, {scalar})));
}

TEST_CASE("what a layout is tells its name, and who cannot read it says so") {
    const TempFolder folder;
    const fs::path native = folder / "native.gguf", other = folder / "other.gguf";
    write_native(tiny, native, KEEL_DTYPE_Q4_0);
    const auto source = open_model_source(native);
    const TensorInfo &q = source->expect("model.layers.0.self_attn.q_proj.weight", {256, 256});
    CHECK(q.dtype_name == "Q4_0");
    REQUIRE(source->block(q) != nullptr);
    CHECK(source->block(q)->tensors.size() == 3);
    float value = 0;
    CHECK_THAT(error_text([&] { source->read(q, 0, 32, &value); }),
               Contains("tensor 'blk.0.attn_q.weight' is laid out as 'cpu/interleaved-") &&
                   Contains("use the file that it was made from"));
    CHECK_THAT(error_text([&] {
                   pipeline_of(native, {"backend.plugin=reference", "policy.plugin=none"});
               }),
               Contains("which backend reference does not read; use the file that it was made from"));
    CHECK_THAT(error_text([&] { pipeline_of(native, {"model.weights=q8_0"}); }),
               Contains("its weights are q4_0 and cannot become q8_0"));
    CHECK_THAT(error_text([&] { write_native(native, folder / "x.gguf", KEEL_DTYPE_NONE); }),
               Contains("laid out for one backend"));
    CHECK_FALSE(fs::exists(folder / "x.gguf"));
    // A version that is not known yet.
    std::ifstream in(native, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::string name = source->block(q)->layout;
    for (size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1))
        bytes[at + name.size() - 1] = '9';
    folder.write("other.gguf", bytes);
    CHECK_THAT(error_text([&] { pipeline_of(other); }),
               Contains("/9', which backend cpu does not read (layout 'cpu/interleaved-") &&
                   Contains("read are cpu/interleaved-N/1"));
}

TEST_CASE("a device that cannot read a layout gets its rows from one that can") {
    const TempFolder folder;
    const fs::path native = folder / "native.gguf", rows = folder / "rows.gguf";
    write_rows(rows, KEEL_DTYPE_Q8_0);
    write_native(rows, native, KEEL_DTYPE_NONE);
    const auto pipeline = pipeline_of(native), plain = pipeline_of(rows);
    const auto reference = Device::open_reference(std::make_shared<HostServices>());
    for (const bool is_gate_up : {false, true}) {
        const auto weight = [&](Pipeline &p) -> Weight & {
            LayerWeights &layer = p.weights().layer(1);
            return is_gate_up ? *layer.gate_up.front() : *layer.qkv.front();
        };
        CHECK(weight(*pipeline).joined() == weight(*plain).joined());
        weight(*pipeline).prepare(*reference);
        CHECK(weight(*pipeline).is_ready(*reference));
        CHECK(weight(*pipeline).sources_needed());
    }
}
