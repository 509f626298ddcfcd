// Metadata of kept layouts that do not go together with the file: each is refused by name.

#include "model/source.hpp"
#include "support/error_text.hpp"
#include "support/gguf_bytes.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// A model of one layer whose v and down are kept, v in a block of its own and gate and up in one.
struct Layout {
    std::string made_for = "cpu/interleaved-8/1";
    std::vector<std::string> blocks{"v.laid_out", "gate.laid_out"},
        layouts{"cpu/interleaved-8/1", "cpu/interleaved-8/1"};
    std::vector<std::string> tensors{"blk.0.attn_v.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"};
    std::vector<int32_t> tensor_blocks{0, 1, 1}, types{8, 8, 8}, rows{16, 64, 64}, cols{32, 32, 32};
    uint64_t v_bytes = 16 * 34;
    std::string leave_out; // a key
    uint32_t block_type = 24;
};

void numbers(GgufBytes &file, const std::string &key, const std::vector<int32_t> &values) {
    std::string array =
        GgufBytes::number(uint32_t{5}) + GgufBytes::number(static_cast<uint64_t>(values.size()));
    for (const int32_t value : values)
        array += GgufBytes::number(value);
    file.raw_key(key, 9, array);
}

GgufBytes file_of(const Layout &l) {
    GgufBytes file;
    file.key("general.architecture", "llama")
        .key("llama.vocab_size", uint32_t{40})
        .key("llama.context_length", uint32_t{64})
        .key("llama.embedding_length", uint32_t{32})
        .key("llama.block_count", uint32_t{1})
        .key("llama.feed_forward_length", uint32_t{64})
        .key("llama.attention.head_count", uint32_t{2})
        .key("llama.attention.head_count_kv", uint32_t{1})
        .key("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    const auto wanted = [&](const char *key) { return l.leave_out != key; };
    file.key("keel.layout", l.made_for.c_str());
    if (wanted("keel.layout.blocks")) file.key("keel.layout.blocks", l.blocks);
    if (wanted("keel.layout.block_layouts")) file.key("keel.layout.block_layouts", l.layouts);
    if (wanted("keel.layout.tensors")) file.key("keel.layout.tensors", l.tensors);
    numbers(file, "keel.layout.tensor_blocks", l.tensor_blocks);
    numbers(file, "keel.layout.tensor_types", l.types);
    if (wanted("keel.layout.tensor_rows")) numbers(file, "keel.layout.tensor_rows", l.rows);
    numbers(file, "keel.layout.tensor_cols", l.cols);
    file.tensor("v.laid_out", {l.v_bytes}, l.block_type,
                std::string(l.v_bytes * (l.block_type == 0 ? 4 : 1), '\1'));
    file.tensor("gate.laid_out", {128 * 34}, 24, std::string(128 * 34, '\2'));
    file.tensor("token_embd.weight", {32, 40}, 0, std::string(32 * 40 * 4, '\0'));
    return file;
}

std::shared_ptr<const ModelSource> open(const Layout &l, const TempFolder &folder) {
    return open_model_source(folder.write("m.gguf", file_of(l).bytes()));
}

std::string refusal(const Layout &l) {
    const TempFolder folder;
    return error_text([&] { open(l, folder); });
}

} // namespace

TEST_CASE("kept matrices have their own names, types and shapes") {
    const TempFolder folder;
    const auto source = open(Layout{}, folder);
    CHECK(source->tensors().size() == 4);
    CHECK(source->blocks().size() == 2);
    const TensorInfo &up = source->expect("model.layers.0.mlp.up_proj.weight", {64, 32});
    CHECK(up.dtype == KEEL_DTYPE_Q8_0);
    CHECK(up.bytes == 64 * 34);
    CHECK_FALSE(source->in_place(up, KEEL_DTYPE_Q8_0));
    REQUIRE(source->block(up) != nullptr);
    CHECK(source->block(up)->layout == "cpu/interleaved-8/1");
    CHECK(source->block(up)->bytes == 128 * 34);
    CHECK(source->block(up)->tensors == std::vector<std::string>{"model.layers.0.mlp.gate_proj.weight",
                                                                 "model.layers.0.mlp.up_proj.weight"});
    CHECK(source->block(source->expect("model.embed_tokens.weight", {40, 32})) == nullptr);
    CHECK(source->total_bytes() == 32 * 40 * 4 + (16 + 128) * 34);
}

TEST_CASE("a block of rows is read as any matrix, in the order that it has") {
    const TempFolder folder;
    Layout l;
    l.layouts[0] = "rows";
    l.tensors[0] = "blk.0.attn_q.weight";
    const auto source = open(l, folder);
    const TensorInfo &q = source->expect("model.layers.0.self_attn.q_proj.weight", {16, 32});
    CHECK(source->block(q) == nullptr);
    CHECK(source->in_place(q, KEEL_DTYPE_Q8_0));
    CHECK(q.interleaved_heads == 0);
    l.v_bytes += 34;
    CHECK_THAT(refusal(l), Contains("tensor 'v.laid_out': its rows are 544 bytes, found 578"));
}

TEST_CASE("layouts that do not go together with their file are refused") {
    const auto refused = [](const std::function<void(Layout &)> &change) {
        Layout l;
        change(l);
        return refusal(l);
    };
    for (const char *key : {"keel.layout.blocks", "keel.layout.block_layouts", "keel.layout.tensors",
                            "keel.layout.tensor_rows"})
        CHECK_THAT(refused([&](Layout &l) { l.leave_out = key; }),
                   Contains(std::string("'") + key + "': the key is missing, though there is 'keel.layout'"));
    CHECK_THAT(refused([](Layout &l) { l.layouts.pop_back(); }), Contains("expected 2 elements, found 1"));
    CHECK_THAT(refused([](Layout &l) { l.rows.push_back(1); }), Contains("expected 3 elements, found 4"));
    CHECK_THAT(refused([](Layout &l) { l.blocks[1] = "none"; }), Contains("there is no tensor 'none'"));
    CHECK_THAT(refused([](Layout &l) { l.blocks[1] = l.blocks[0]; }), Contains("or two blocks in it"));
    CHECK_THAT(refused([](Layout &l) {
                   l.block_type = 0;
                   l.v_bytes = 16;
               }),
               Contains("expected I8 with one dimension, found F32 of [16]"));
    CHECK_THAT(refused([](Layout &l) { l.layouts[0] = "a b"; }), Contains("'a b' names no layout"));
    CHECK_THAT(refused([](Layout &l) { l.layouts[0] = ""; }), Contains("names no layout"));
    CHECK_THAT(refused([](Layout &l) { l.layouts[0] = std::string(64, 'x'); }), Contains("names no layout"));
    CHECK_THAT(refused([](Layout &l) {
                   l.tensor_blocks = {0, 0, 0};
               }),
               Contains("its type or number of columns") || Contains("do not fit"));
    CHECK_THAT(refused([](Layout &l) {
                   l.tensor_blocks = {1, 0, 0};
               }),
               Contains("no tensor is in this block"));
    CHECK_THAT(refused([](Layout &l) { l.tensor_blocks = {0, 1, 2}; }), Contains("tensor 2 is in no block"));
    CHECK_THAT(refused([](Layout &l) { l.tensor_blocks[2] = -1; }), Contains("keel.layout.tensor_blocks"));
    CHECK_THAT(refused([](Layout &l) { l.types[2] = 0; }),
               Contains("its type or number of columns is not that of the others"));
    CHECK_THAT(refused([](Layout &l) { l.types[0] = 9; }), Contains("type 9 cannot be kept"));
    CHECK_THAT(refused([](Layout &l) { l.types[0] = 77; }), Contains("type 77 cannot be kept"));
    CHECK_THAT(refused([](Layout &l) { l.cols[0] = 33; }),
               Contains("33 columns are no whole blocks of q8_0"));
    CHECK_THAT(refused([](Layout &l) { l.rows[0] = 17; }),
               Contains("its 578 bytes do not fit into block 'v.laid_out' of 544"));
    CHECK_THAT(refused([](Layout &l) { l.rows[0] = 0; }), Contains("keel.layout.tensor_rows"));
    CHECK_THAT(refused([](Layout &l) {
                   l.rows[0] = 2147483647;
                   l.cols[0] = 2147483616;
               }),
               Contains("do not fit"));
    CHECK_THAT(refused([](Layout &l) { l.tensors[0] = "token_embd.weight"; }), Contains("stands in"));
}
