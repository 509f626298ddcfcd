#include "ops/op_call.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace keel;

namespace {

// The args of an op with every member set. Each tensor is a different one.
class Filled {
  public:
    explicit Filled(keel_op op, uint64_t features = 0) {
        fill(op);
        reinterpret_cast<keel_op_args *>(storage_)->features = features;
    }
    const keel_op_args *args() const { return reinterpret_cast<const keel_op_args *>(storage_); }
    const keel_tensor *weight_tensor = nullptr;
    size_t tensors() const { return tensors_.size(); }
    std::string bytes() const {
        std::string all;
        const auto append = [&](const void *p, size_t n) {
            all.append(static_cast<const char *>(p), n);
        };
        append(storage_, sizeof storage_);
        for (const keel_kv_view &v : views_) append(&v, sizeof v);
        append(&tables_, sizeof tables_);
        append(&scores_, sizeof scores_);
        append(sides_, sizeof sides_);
        return all;
    }

  private:
    const keel_tensor *tensor() {
        keel_tensor t = {KEEL_HEADER(keel_tensor)};
        t.rank = 1;
        t.offset = tensors_.size();
        tensors_.push_back(t);
        return &tensors_.back();
    }
    const keel_kv_view *view(size_t i) {
        keel_kv_view &v = views_[i];
        v = {KEEL_HEADER(keel_kv_view)};
        v.k = tensor(), v.v = tensor(), v.block_table = tensor(), v.lengths = tensor(),
        v.positions = tensor();
        return &v;
    }
    const keel_rope_tables *tables() {
        tables_ = {KEEL_HEADER(keel_rope_tables)};
        tables_.cos = tensor(), tables_.sin = tensor();
        return &tables_;
    }
    const keel_scores *scores() {
        scores_ = {KEEL_HEADER(keel_scores)};
        scores_.out = tensor();
        return &scores_;
    }
    template <typename Args> Args &as() {
        auto *args = new (storage_) Args{};
        args->h = KEEL_HEADER(Args);
        return *args;
    }
    void fill(keel_op op);

    alignas(16) unsigned char storage_[256] = {};
    std::deque<keel_tensor> tensors_; // a deque keeps the addresses of its elements
    keel_kv_view views_[2] = {};
    keel_rope_tables tables_ = {};
    keel_scores scores_ = {};
    const keel_tensor *sides_[2] = {};
};

void Filled::fill(keel_op op) {
    switch (op) {
    case KEEL_OP_MATMUL: {
        auto &a = as<keel_matmul_args>();
        a.x = tensor(), a.w = weight_tensor = tensor(), a.bias = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_EMBED: {
        auto &a = as<keel_embed_args>();
        a.ids = tensor(), a.w = weight_tensor = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_CHOOSE_EXPERTS: {
        auto &a = as<keel_choose_experts_args>();
        a.logits = tensor(), a.bias = tensor(), a.index = tensor(), a.weights = tensor();
        break;
    }
    case KEEL_OP_EXPERT_MATMUL: {
        auto &a = as<keel_expert_matmul_args>();
        a.x = tensor(), a.w = weight_tensor = tensor(), a.index = tensor(), a.weights = tensor();
        a.out = tensor();
        break;
    }
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: {
        auto &a = as<keel_norm_args>();
        a.x = tensor(), a.residual = tensor(), a.weight = tensor(), a.bias = tensor(),
        a.out = tensor();
        break;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        auto &a = as<keel_gate_args>();
        a.gate = tensor(), a.up = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: {
        auto &a = as<keel_elementwise_args>();
        a.a = tensor(), a.b = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST:
    case KEEL_OP_COPY:
    case KEEL_OP_TRANSPOSE:
    case KEEL_OP_ZERO: {
        auto &a = as<keel_move_args>();
        a.x = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_ROPE: {
        auto &a = as<keel_rope_args>();
        a.x = tensor(), a.positions = tensor(), a.tables = tables(), a.out = tensor();
        break;
    }
    case KEEL_OP_QKV_PREPARE: {
        auto &a = as<keel_qkv_args>();
        a.q = tensor(), a.k = tensor(), a.v = tensor(), a.positions = tensor(), a.tables = tables();
        a.q_norm = tensor(), a.k_norm = tensor(), a.kv = view(0), a.q_out = tensor();
        a.q_unrotated = tensor(), a.k_unrotated = tensor();
        break;
    }
    case KEEL_OP_ATTENTION: {
        auto &a = as<keel_attention_args>();
        a.q = tensor(), a.kv = view(0), a.out = tensor(), a.q_positions = tensor(),
        a.lse = tensor();
        a.scores = scores();
        break;
    }
    case KEEL_OP_ATTENTION_SCORES: {
        auto &a = as<keel_attention_scores_args>();
        a.q = tensor(), a.kv = view(0), a.ranges = tensor(), a.weights = tensor(),
        a.q_positions = tensor(), a.scores = scores();
        break;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        auto &a = as<keel_keys_args>();
        a.kv = view(0), a.tables = tables(), a.projection = tensor(), a.out = tensor();
        break;
    }
    case KEEL_OP_QUERY_STATS: {
        auto &a = as<keel_query_stats_args>();
        a.q = tensor(), a.sum = tensor(), a.second = tensor();
        break;
    }
    case KEEL_OP_KV_APPEND: {
        auto &a = as<keel_kv_append_args>();
        a.k = tensor(), a.v = tensor(), a.positions = tensor(), a.kv = view(0);
        break;
    }
    case KEEL_OP_KV_GATHER: {
        auto &a = as<keel_kv_gather_args>();
        a.from = view(0), a.to = view(1), a.index = tensor(), a.count = tensor();
        sides_[0] = tensor(), sides_[1] = tensor();
        a.sides = sides_, a.n_sides = 2;
        break;
    }
    case KEEL_OP_KV_REROTATE: {
        auto &a = as<keel_kv_rerotate_args>();
        a.kv = view(0), a.tables = tables(), a.row = tensor(), a.new_positions = tensor(),
        a.source = tensor();
        break;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        auto &a = as<keel_rows_args>();
        a.x = tensor(), a.values = tensor(), a.index = tensor();
        break;
    }
    default: FAIL("op " << op << " is not in this test");
    }
}

// Written by hand from the headers. "+" marks a tensor that is read and written: it is written only
// partly, or added to.
const std::string kv_in = "kv.k< kv.v< kv.block_table< kv.lengths< kv.positions< ";
const std::string kv_both = "kv.k+ kv.v+ kv.block_table< kv.lengths< kv.positions+ ";
const std::map<keel_op, std::string> by_hand = {
    {KEEL_OP_MATMUL, "x< w< bias< out> "},
    {KEEL_OP_EMBED, "ids< w< out> "},
    {KEEL_OP_RMS_NORM, "x< residual+ weight< bias< out> "},
    {KEEL_OP_ADD_RMS_NORM, "x< residual+ weight< bias< out> "},
    {KEEL_OP_LAYER_NORM, "x< residual+ weight< bias< out> "},
    {KEEL_OP_SILU_MUL, "gate< up< out> "},
    {KEEL_OP_GELU_MUL, "gate< up< out> "},
    {KEEL_OP_ADD, "a< b< out> "},
    {KEEL_OP_ADD_BIAS, "a< b< out> "},
    {KEEL_OP_SCALE, "a< b< out> "},
    {KEEL_OP_SCALED_ADD, "a< b< out+ "},
    {KEEL_OP_SOFTMAX, "x< out> "},
    {KEEL_OP_CAST, "x< out> "},
    {KEEL_OP_COPY, "x< out> "},
    {KEEL_OP_TRANSPOSE, "x< out> "},
    {KEEL_OP_ZERO, "x< out> "},
    {KEEL_OP_ROPE, "x< positions< tables.cos< tables.sin< out> "},
    {KEEL_OP_QKV_PREPARE, "q< k< v< positions< tables.cos< tables.sin< q_norm< k_norm< " + kv_both +
                              "q_out> q_unrotated> k_unrotated> "},
    {KEEL_OP_ATTENTION, "q< " + kv_in + "q_positions< out> lse> scores.out+ "},
    {KEEL_OP_ATTENTION_SCORES, "q< " + kv_in + "ranges< weights< q_positions< scores.out+ "},
    {KEEL_OP_KEY_PROJECT, kv_in + "tables.cos< tables.sin< projection< out+ "},
    {KEEL_OP_KEY_SUM, kv_in + "tables.cos< tables.sin< projection< out> "},
    {KEEL_OP_VALUE_NORMS, kv_in + "tables.cos< tables.sin< projection< out+ "},
    {KEEL_OP_QUERY_STATS, "q< sum+ second+ "},
    {KEEL_OP_KV_APPEND, "k< v< positions< " + kv_both},
    {KEEL_OP_KV_GATHER,
     kv_in +
         "to.k+ to.v+ to.block_table< to.lengths< to.positions+ index< count< side.0+ side.1+ "},
    {KEEL_OP_KV_REROTATE, kv_both + "tables.cos< tables.sin< row< new_positions< source< "},
    {KEEL_OP_ARGMAX_ROWS, "x< values> index> "},
    {KEEL_OP_TOP_K_ROWS, "x< values> index> "},
    {KEEL_OP_CHOOSE_EXPERTS, "logits< bias< index> weights> "},
    {KEEL_OP_EXPERT_MATMUL, "x< w< index< weights< out> "},
};

std::string list(const OpCall &copy) {
    std::string text;
    for (const OpCall::Operand &operand : copy.tensors()) {
        text += operand.name;
        text += operand.access == OpCall::Access::in    ? "< "
                : operand.access == OpCall::Access::out ? "> "
                                                        : "+ ";
    }
    return text;
}

} // namespace

TEST_CASE("a call of any op lists every tensor with its role") {
    REQUIRE(by_hand.size() == op_count);
    for (keel_op op = 1; op <= op_count; ++op) {
        INFO(op_name(op));
        const Filled filled(op);
        const OpCall copy(op, filled.args());
        CHECK(list(copy) == by_hand.at(op));
        CHECK(copy.tensors().size() == filled.tensors());
        std::vector<bool> seen(filled.tensors());
        for (const OpCall::Operand &operand : copy.tensors()) seen[operand.tensor.offset] = true;
        CHECK(std::count(seen.begin(), seen.end(), true) ==
              static_cast<std::ptrdiff_t>(seen.size()));
    }
}

TEST_CASE("changing the tensors of a call does not change the original, and changes the args") {
    for (keel_op op = 1; op <= op_count; ++op) {
        INFO(op_name(op));
        const Filled filled(op);
        const std::string before = filled.bytes();
        OpCall call(op, filled.args());
        for (OpCall::Operand &operand : call.tensors()) operand.tensor.offset += 1000;
        call.args()->features = 77;
        CHECK(filled.bytes() == before);
        const OpCall again(op, call.args());
        CHECK(again.tensors().size() == filled.tensors());
        for (const OpCall::Operand &operand : again.tensors()) CHECK(operand.tensor.offset >= 1000);
    }
}

TEST_CASE("calls are values: a copy has the same bytes, and a changed call has others") {
    for (keel_op op = 1; op <= op_count; ++op) {
        INFO(op_name(op));
        const Filled filled(op), same(op);
        OpCall call(op, filled.args());
        (void)call.args(); // the args contain pointers to themselves
        std::vector<std::byte> bytes, others;
        call.bytes(bytes);
        OpCall copy = call;
        copy.bytes(others);
        CHECK(bytes == others);
        const OpCall moved = std::move(copy);
        moved.bytes(others);
        CHECK(bytes == others);
        OpCall(op, same.args()).bytes(others); // the descriptors have other addresses
        CHECK(bytes == others);
        call.tensors().back().tensor.shape[0] = 9;
        call.bytes(others);
        CHECK(bytes != others);
    }
}

TEST_CASE("with accumulation a matmul's output is also an input, and a weight's handle hides its "
          "tensor") {
    const Filled filled(KEEL_OP_MATMUL, KEEL_MATMUL_ACCUMULATE);
    CHECK(list(OpCall(KEEL_OP_MATMUL, filled.args())) == "x< w< bias< out+ ");
    keel_matmul_args args = *reinterpret_cast<const keel_matmul_args *>(filled.args());
    int anything = 0;
    args.weight = reinterpret_cast<keel_weight *>(&anything);
    OpCall copy(KEEL_OP_MATMUL, reinterpret_cast<const keel_op_args *>(&args));
    CHECK(list(copy) == "x< bias< out+ ");
    REQUIRE(copy.takes_weight());
    CHECK(copy.weight() == args.weight);
    CHECK(copy.as<keel_matmul_args>().w == nullptr);
    copy.set_weight(nullptr, filled.weight_tensor);
    CHECK(copy.weight() == nullptr);
    CHECK(copy.as<keel_matmul_args>().w == filled.weight_tensor);
}

TEST_CASE("unused members are not visited") {
    for (keel_op op = 1; op <= op_count; ++op) {
        // the view of a cache is never missing
        if (by_hand.at(op).find("kv.") != std::string::npos) continue;
        INFO(op_name(op));
        alignas(16) unsigned char storage[256] = {};
        const auto *args = reinterpret_cast<const keel_op_args *>(storage);
        CHECK(OpCall(op, args).tensors().empty());
    }
}

TEST_CASE("a template of args exists longer than its source, and has no buffers") {
    for (keel_op op = 1; op <= op_count; ++op) {
        INFO(op_name(op));
        auto filled = std::make_unique<Filled>(op, 5);
        OpCall kept = OpCall(op, filled->args()).without_memory();
        filled.reset();
        const OpCall copy(op, kept.args());
        CHECK(list(copy).size() == by_hand.at(op).size());
        CHECK(kept.args()->features == 5);
        for (const OpCall::Operand &operand : copy.tensors())
            CHECK(operand.tensor.buffer == nullptr);
    }
}

TEST_CASE("more side arrays than a copy can hold are refused") {
    Filled filled(KEEL_OP_KV_GATHER);
    keel_kv_gather_args args = *reinterpret_cast<const keel_kv_gather_args *>(filled.args());
    args.n_sides = 1000;
    CHECK_THROWS(OpCall(KEEL_OP_KV_GATHER, reinterpret_cast<const keel_op_args *>(&args)));
    CHECK_THROWS(OpCall(0, filled.args()));
    CHECK_THROWS(OpCall(op_count + 1, filled.args()));
}

TEST_CASE("every op of the table has its name, and is found by it") {
    keel_backend table = {};
    for (keel_op op = 1; op <= op_count; ++op) {
        CHECK_FALSE(has_op(table, op));
        CHECK(std::string(op_name(op)) != "?");
    }
    CHECK(std::string(op_name(KEEL_OP_MATMUL)) == "matmul");
    CHECK(std::string(op_name(KEEL_OP_TOP_K_ROWS)) == "top_k_rows");
    CHECK(std::string(op_name(KEEL_OP_EXPERT_MATMUL)) == "expert_matmul");
    CHECK(std::string(op_name(op_count + 1)) == "?");
    CHECK_FALSE(has_op(table, 0));
}
