// Compares each input of a policy with float64 sums over the same keys and queries: after evictions
// that leave heads of different length, in forks, in saved caches, for each KV dtype.
#include "kv/tapped_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape inputs_shape(keel_dtype dtype = KEEL_DTYPE_F32) { return kv_shape(96, dtype, 3); }

CacheConfig slack_budget(double tokens, int64_t slack = 4) {
    CacheConfig config;
    config.budget_unit = BudgetUnit::tokens;
    config.budget = tokens;
    config.slack = slack;
    return config;
}

// A policy that keeps slots by a pattern. The pattern differs between heads and layers, so the kept
// slots are scattered and the heads have different lengths. `look` receives the input before.
using Look = std::function<void(const keel_policy_input &)>;
Script scattering(uint64_t needs, Look look) {
    Script script;
    script.needs.needs = needs;
    script.needs.granularity = KEEL_KEEP_HEAD_RAGGED;
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.needs.reduce_queries = KEEL_REDUCE_SUM;
    script.needs.reduce_group = KEEL_REDUCE_MEAN;
    script.decide = [look = std::move(look)](const keel_policy_input &in,
                                             keel_policy_decision &out) {
        look(in);
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            int32_t n = 0;
            for (int32_t s = 0; s < in.lengths[h]; ++s) {
                const bool stays =
                    s >= in.lengths[h] - 9 || s < 2 ||
                    (s + static_cast<int32_t>(in.layer)) % (3 + static_cast<int32_t>(h)) == 0;
                if (stays) out.keep[h * in.stride + n++] = s;
            }
            out.keep_count[h] = n;
        }
        return KEEL_OK;
    };
    return script;
}

// Reads a prompt in two steps, then decodes. There are several evictions.
void drive(TappedRun &run, int decoded = 40) {
    run.step(30, StepKind::prefill_chunk);
    run.step(25, StepKind::prefill_end);
    for (int i = 0; i < decoded; ++i) run.step(1, StepKind::decode);
}

CacheConfig with(Script &script, CacheConfig config) {
    config.policy = scripted(script);
    return config;
}

double largest_gap = 0;
void check_close(double actual, double wanted, double bound = 2e-5) {
    const double gap = std::abs(actual - wanted) / std::max(1.0, std::abs(wanted));
    if (!(gap <= largest_gap)) largest_gap = gap;
    if (!(gap < bound)) CHECK(actual == Approx(wanted));
}

const keel_dtype kv_dtypes[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0,
                                KEEL_DTYPE_Q4_0};

} // namespace

TEST_CASE(
    "Window scores are the attention of the last queries over the kept slots, for all reductions") {
    struct Form {
        keel_reduce queries, group;
        uint32_t window;
    };
    const Form forms[] = {{KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, 7},
                          {KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX, 1},
                          {KEEL_REDUCE_MAX, KEEL_REDUCE_NONE, 5},
                          {KEEL_REDUCE_MEAN, KEEL_REDUCE_SUM, 8}};
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : kv_dtypes) {
            const Form &form = forms[dtype % 4];
            INFO(device << " " << keel_dtype_name(dtype) << " window " << form.window);
            TappedRun *current = nullptr;
            int64_t compared = 0;
            Script script = scattering(KEEL_NEED_WINDOW_SCORES, [&](const keel_policy_input &in) {
                REQUIRE(in.query_count == form.window);
                const uint32_t group = in.heads / in.kv_heads;
                std::vector<std::vector<std::vector<double>>> p; // [query][head][slot]
                for (int64_t i = 0; i < in.query_count; ++i) {
                    const int64_t token = in.next_position - in.query_count + i;
                    std::vector<std::vector<bool>> visible;
                    for (uint32_t h = 0; h < in.kv_heads; ++h) {
                        std::vector<bool> sees;
                        for (const int32_t position :
                             current->manager->cache().positions(in.layer, h))
                            sees.push_back(position <= token);
                        visible.push_back(std::move(sees));
                    }
                    p.push_back(current->probabilities(*current->manager, in.layer,
                                                       current->query(token), visible));
                }
                const auto of_head = [&](uint32_t h, size_t j) {
                    std::vector<double> values;
                    for (const auto &query : p) values.push_back(query[h][j]);
                    return reduce(form.queries, values);
                };
                for (uint32_t row = 0;
                     row < (form.group == KEEL_REDUCE_NONE ? in.heads : in.kv_heads); ++row) {
                    const uint32_t kv = form.group == KEEL_REDUCE_NONE ? row / group : row;
                    for (int32_t j = 0; j < in.lengths[kv]; ++j, ++compared) {
                        std::vector<double> heads;
                        for (uint32_t g = 0; form.group != KEEL_REDUCE_NONE && g < group; ++g)
                            heads.push_back(of_head(row * group + g, static_cast<size_t>(j)));
                        check_close(in.scores[row * in.stride + j],
                                    form.group == KEEL_REDUCE_NONE
                                        ? of_head(row, static_cast<size_t>(j))
                                        : reduce(form.group, heads));
                    }
                }
            });
            script.needs.window = form.window;
            script.needs.reduce_queries = form.queries;
            script.needs.reduce_group = form.group;
            TappedRun run(device, inputs_shape(dtype), with(script, slack_budget(30)));
            current = &run;
            drive(run);
            CHECK(script.decided >= 6);
            CHECK(compared > 400);
            CHECK(run.manager->cache().length(0, 0) != run.manager->cache().length(0, 1));
        }
    }
}

TEST_CASE("If there are fewer new tokens than the window, fewer queries are used") {
    Script script = scattering(KEEL_NEED_WINDOW_SCORES,
                               [](const keel_policy_input &in) { CHECK(in.query_count == 12); });
    script.needs.window = 20;
    TappedRun run("reference", inputs_shape(), with(script, slack_budget(10)));
    run.step(12, StepKind::prefill_end);
    CHECK(script.decided == 2);
}

TEST_CASE(
    "A policy that acts once uses the queries of the last prompt and holds none between prompts") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        TappedRun *current = nullptr;
        std::vector<int64_t> counts;
        Script script = scattering(KEEL_NEED_WINDOW_SCORES, [&](const keel_policy_input &in) {
            if (in.layer == 0) counts.push_back(in.query_count);
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                const auto positions = current->manager->cache().positions(in.layer, h);
                std::vector<double> wanted(positions.size(), 0.0);
                for (int64_t i = in.next_position - in.query_count; i < in.next_position; ++i) {
                    std::vector<std::vector<bool>> visible;
                    for (uint32_t head = 0; head < in.kv_heads; ++head) {
                        std::vector<bool> sees;
                        for (const int32_t position :
                             current->manager->cache().positions(in.layer, head))
                            sees.push_back(position <= i);
                        visible.push_back(std::move(sees));
                    }
                    const auto p = current->probabilities(*current->manager, in.layer,
                                                          current->query(i), visible);
                    for (size_t j = 0; j < wanted.size(); ++j)
                        wanted[j] += (p[h * 2][j] + p[h * 2 + 1][j]) / 2;
                }
                for (size_t j = 0; j < wanted.size(); ++j)
                    check_close(in.scores[h * in.stride + static_cast<int64_t>(j)], wanted[j]);
            }
        });
        script.needs.window = 6;
        script.needs.flags = KEEL_POLICY_PREFILL_ONLY;
        TappedRun run(device, inputs_shape(), with(script, slack_budget(20)));
        current = &run;
        run.step(20, StepKind::prefill_chunk);
        CHECK(run.manager->policy_bytes() < 200);
        run.step(20, StepKind::prefill_end);
        CHECK(run.manager->policy_bytes() < 200);
        for (int i = 0; i < 5; ++i) run.step(1, StepKind::decode);
        CHECK(run.manager->policy_bytes() < 200);
        run.step(4, StepKind::prefill_end); // a turn that is shorter than the window
        CHECK(counts == std::vector<int64_t>{6, 4});
    }
}

TEST_CASE(
    "Running scores sum the attention of all queries, move with their slots, and begin at 0") {
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : kv_dtypes) {
            INFO(device << " " << keel_dtype_name(dtype));
            TappedRun *current = nullptr;
            int64_t compared = 0;
            Script script = scattering(KEEL_NEED_RUNNING_SCORES, [&](const keel_policy_input &in) {
                CHECK(in.query_count == in.next_position);
                for (uint32_t h = 0; h < in.kv_heads; ++h) {
                    const auto positions = current->manager->cache().positions(in.layer, h);
                    for (int32_t j = 0; j < in.lengths[h]; ++j, ++compared)
                        check_close(
                            in.scores[h * in.stride + j],
                            current->paid(in.layer, h).at(positions[static_cast<size_t>(j)]));
                }
            });
            TappedRun run(device, inputs_shape(dtype), with(script, slack_budget(30)));
            current = &run;
            drive(run);
            CHECK(script.decided >= 6);
            CHECK(compared > 400);
        }
    }
}

namespace {

// A RoPE of the model, and whether the policy needs keys from before it.
struct TurnedKeys {
    const char *name;
    uint64_t needs;
    size_t pairs; // rotated pairs of elements; a head has 32 elements
    keel_rope_mode mode;
    double factor;
    bool is_split; // layer 1 has no RoPE
};
constexpr TurnedKeys turned_keys[] = {
    {"as cached", 0, 16, KEEL_ROPE_HALF_SPLIT, 1, false},
    {"whole heads", KEEL_NEED_UNROTATED, 16, KEEL_ROPE_HALF_SPLIT, 1, false},
    {"a part of each head, with a factor", KEEL_NEED_UNROTATED, 10, KEEL_ROPE_HALF_SPLIT, 1.25,
     false},
    {"neighbours", KEEL_NEED_UNROTATED, 12, KEEL_ROPE_INTERLEAVED, 1, false},
    {"a layer without RoPE", KEEL_NEED_UNROTATED, 16, KEEL_ROPE_HALF_SPLIT, 0.5, true},
};

} // namespace

TEST_CASE("Key sums, anchors, norms, projections and keys before RoPE are those of the keys in the "
          "cache") {
    std::vector<float> matrix(32 * 5);
    for (size_t i = 0; i < matrix.size(); ++i)
        matrix[i] = static_cast<float>(static_cast<int>(i * 37 % 11) - 5) / 8;
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : kv_dtypes) {
            for (const TurnedKeys &turned : turned_keys) {
                INFO(device << " " << keel_dtype_name(dtype) << " " << turned.name);
                std::vector<double> frequencies;
                for (size_t i = 0; i < turned.pairs; ++i)
                    frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / 16));
                const bool is_interleaved = turned.mode == KEEL_ROPE_INTERLEAVED;
                TappedRun *current = nullptr;
                Script script = scattering(
                    KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR | KEEL_NEED_KEY_NORMS |
                        KEEL_NEED_VALUE_NORMS | KEEL_NEED_KEYS | KEEL_NEED_KEY_PROJECT |
                        turned.needs,
                    [&](const keel_policy_input &in) {
                        KvCache &cache = current->manager->cache();
                        const auto keys = current->rig.keys(cache, in.layer);
                        const auto longest = static_cast<size_t>(cache.max_length(in.layer));
                        for (uint32_t h = 0; h < in.kv_heads; ++h) {
                            const float *head = keys.data() + h * longest * 32;
                            std::vector<double> sum(32, 0.0);
                            for (int32_t j = 0; j < in.lengths[h]; ++j) {
                                double norm = 0;
                                for (int d = 0; d < 32; ++d)
                                    norm += double{head[j * 32 + d]} * double{head[j * 32 + d]};
                                for (size_t d = 0; d < 32; ++d)
                                    sum[d] += double{head[static_cast<size_t>(j) * 32 + d]} /
                                              std::sqrt(norm);
                                check_close(in.key_norms[h * in.stride + j], std::sqrt(norm));
                            }
                            for (size_t d = 0; d < 32; ++d)
                                check_close(in.key_sum[h * 32 + d], sum[d]);
                            for (int32_t j = 0; j < in.lengths[h]; ++j) {
                                double anchor = 0;
                                std::vector<double> key(32);
                                const auto at = static_cast<size_t>(j);
                                for (size_t d = 0; d < 32; ++d) {
                                    key[d] = double{head[at * 32 + d]};
                                    anchor += key[d] * sum[d];
                                }
                                check_close(in.key_anchor[h * in.stride + j], anchor, 1e-4);
                                const bool has_rope = !turned.is_split || in.layer == 0;
                                const size_t pairs =
                                    turned.needs != 0 && has_rope ? turned.pairs : 0;
                                for (size_t d = 0; d < pairs; ++d) {
                                    const double angle =
                                        -cache.positions(in.layer, h)[at] * frequencies[d];
                                    const size_t first = is_interleaved ? 2 * d : d,
                                                 second = is_interleaved ? 2 * d + 1 : d + pairs;
                                    const double a = double{head[at * 32 + first]} / turned.factor,
                                                 b = double{head[at * 32 + second]} / turned.factor;
                                    key[first] = a * std::cos(angle) - b * std::sin(angle);
                                    key[second] = b * std::cos(angle) + a * std::sin(angle);
                                }
                                const size_t slot = h * static_cast<size_t>(in.stride) + at;
                                for (size_t d = 0; d < 32; ++d)
                                    check_close(in.keys[slot * 32 + d], key[d]);
                                for (size_t r = 0; r < 5; ++r) {
                                    double product = 0;
                                    for (size_t d = 0; d < 32; ++d)
                                        product += key[d] * double{matrix[d * 5 + r]};
                                    check_close(in.key_project[slot * 5 + r], product);
                                }
                            }
                        }
                    });
                script.needs.projection = matrix.data();
                script.needs.projection_cols = 5;
                CacheConfig config = with(script, slack_budget(30));
                config.rope_frequencies = frequencies;
                config.rope_factor = turned.factor;
                config.rope_mode = turned.mode;
                if (turned.is_split) {
                    config.local_rope_layers = {false, true};
                    config.local_rope_frequencies.assign(turned.pairs, 0.0);
                }
                TappedRun run(device, inputs_shape(dtype), config);
                current = &run;
                drive(run, 20);
                CHECK(script.decided >= 3);
            }
        }
    }
}

TEST_CASE("Query statistics sum un-rotated queries without the first ones, in prefill and decode") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        TappedRun *current = nullptr;
        Script script = scattering(KEEL_NEED_QUERY_STATS, [&](const keel_policy_input &in) {
            REQUIRE(in.query_count == in.next_position - 4);
            std::vector<double> sum(4 * 32, 0.0), second(4 * 32 * 32, 0.0);
            for (int64_t token = 4; token < in.next_position; ++token) {
                const auto q = current->rig.tokens().query(token, 0);
                for (size_t h = 0; h < 4; ++h) {
                    for (size_t a = 0; a < 32; ++a) {
                        sum[h * 32 + a] += double{q[h * 32 + a]};
                        for (size_t b = 0; b < 32; ++b)
                            second[(h * 32 + a) * 32 + b] +=
                                double{q[h * 32 + a]} * double{q[h * 32 + b]};
                    }
                }
            }
            for (size_t i = 0; i < sum.size(); ++i) check_close(in.query_sum[i], sum[i]);
            for (size_t i = 0; i < second.size(); ++i) check_close(in.query_second[i], second[i]);
        });
        script.needs.skip_queries = 4;
        TappedRun run(device, inputs_shape(), with(script, slack_budget(30)));
        current = &run;
        // not in the window, like the first three of the next step
        run.step(1, StepKind::prefill_chunk);
        drive(run, 60);
        CHECK(script.decided >= 8);
    }
}

TEST_CASE(
    "Chunk scores are the attention of a piece's queries within the piece, after the cache too") {
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_Q8_0}) {
            INFO(device << " " << keel_dtype_name(dtype));
            TappedRun *current = nullptr;
            std::vector<std::map<int32_t, double>> seen(
                4); // [layer, head]: token -> score when it was first seen
            int64_t compared = 0;
            Script script = scattering(KEEL_NEED_CHUNK_SCORES, [&](const keel_policy_input &in) {
                for (uint32_t h = 0; h < in.kv_heads; ++h) {
                    const auto positions = current->manager->cache().positions(in.layer, h);
                    auto &known = seen[in.layer * 2 + h];
                    for (int32_t j = 0; j < in.lengths[h]; ++j) {
                        const int32_t token = positions[static_cast<size_t>(j)];
                        const float score = in.chunk_scores[h * in.stride + j];
                        if (token >= 55) { // tokens from 55 on were decoded
                            CHECK(score == 0);
                            continue;
                        }
                        if (!known.contains(token)) {
                            // At the first eviction all slots exist, so token t is in slot t.
                            const int32_t begin = token / 10 * 10, end = std::min(55, begin + 10);
                            double sum = 0;
                            for (int32_t query = begin; query < end; ++query) {
                                std::vector<std::vector<bool>> visible(
                                    2, std::vector<bool>(positions.size(), false));
                                for (auto &row : visible) {
                                    for (int32_t t = begin; t < end; ++t)
                                        row[static_cast<size_t>(t)] = true;
                                }
                                const auto p = current->probabilities(
                                    *current->manager, in.layer, current->query(query), visible);
                                sum += (p[h * 2][static_cast<size_t>(j)] +
                                        p[h * 2 + 1][static_cast<size_t>(j)]) /
                                       2;
                            }
                            known[token] = sum;
                        }
                        check_close(score, known.at(token));
                        ++compared;
                    }
                }
            });
            script.needs.chunk = 10;
            TappedRun run(device, inputs_shape(dtype), with(script, slack_budget(30)));
            current = &run;
            CHECK(run.manager->next_chunk(55, 36) == 30); // pieces are not cut
            drive(run, 20);
            CHECK(script.decided >= 3);
            CHECK(compared > 200);
        }
    }
}

TEST_CASE("Chunk scores of a second prompt are right if heads differ in length") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        TappedRun *current = nullptr;
        int64_t compared = 0;
        bool differ = false;
        Script script = scattering(KEEL_NEED_CHUNK_SCORES, [&](const keel_policy_input &in) {
            if (in.next_position != 90) return;
            differ = differ || in.lengths[0] != in.lengths[1];
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                const auto positions = current->manager->cache().positions(in.layer, h);
                for (size_t j = positions.size() - 15; j < positions.size(); ++j) {
                    const int32_t begin = positions[j] < 80 ? 75 : 80, end = begin < 80 ? 80 : 90;
                    std::vector<bool> piece;
                    for (const int32_t token : positions)
                        piece.push_back(token >= begin && token < end);
                    double sum = 0;
                    for (int32_t query = begin; query < end; ++query) {
                        std::vector<std::vector<bool>> visible(2);
                        for (uint32_t other = 0; other < 2; ++other)
                            visible[other].resize(
                                current->manager->cache().positions(in.layer, other).size());
                        visible[h] = piece;
                        const auto p = current->probabilities(*current->manager, in.layer,
                                                              current->query(query), visible);
                        sum += (p[h * 2][j] + p[h * 2 + 1][j]) / 2;
                    }
                    check_close(in.chunk_scores[h * in.stride + static_cast<int64_t>(j)], sum);
                    ++compared;
                }
            }
        });
        script.needs.chunk = 10;
        TappedRun run(device, inputs_shape(), with(script, slack_budget(30)));
        current = &run;
        drive(run, 20);
        run.step(15, StepKind::prefill_end);
        CHECK(compared == 2 * 2 * 15);
        CHECK(differ);
    }
}

namespace {

// Replaces a session. Instruction tokens have the numbers from 1000 on, or from 2000 on if `words`
// are given.
class FakeReplayer final : public SequenceForward {
  public:
    explicit FakeReplayer(TappedRun &run) : run_(run) {}
    std::span<const int32_t> tokens() const override { return tokens_; }
    std::span<const int32_t> instruction(bool from_words) const override {
        return from_words ? words_ : whole_;
    }
    std::span<const int32_t> opening() const override { return opening_tokens; }
    int64_t skipped() const override { return skip; }
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 StepTap &tap) override {
        const std::vector<int64_t> tokens(ids.begin(), ids.end());
        const std::vector<int32_t> at(positions.begin(), positions.end());
        run_.rig.write(run_.manager->cache(), tokens, at);
        run_.run_layers(&tap, static_cast<uint32_t>(ids.size()), tokens, at, *run_.manager);
        asked.insert(asked.end(), ids.begin(), ids.end());
    }
    void take(int32_t n) {
        for (int32_t i = 0; i < n; ++i) tokens_.push_back(static_cast<int32_t>(tokens_.size()));
    }
    std::vector<int32_t> asked;
    std::vector<int32_t> opening_tokens; // between the instruction and the piece
    int64_t skip = 0;                    // tokens that are not repeated

  private:
    TappedRun &run_;
    std::vector<int32_t> tokens_, whole_ = {1000, 1001}, words_ = {2000, 2001, 2002};
};

} // namespace

TEST_CASE("A replay gives the largest attention of a repetition and does not change the cache") {
    const auto kinds = GENERATE(0, 1); // 1: as kvpress, with an opening, and without a prefix
    for (const std::string &device : kv_devices()) {
        INFO(device << ", kind " << kinds);
        TappedRun *current = nullptr;
        std::vector<float> keys_before;
        std::vector<std::vector<double>> wanted; // [layer * head][slot]
        Script script = scattering(KEEL_NEED_REPLAY, [&](const keel_policy_input &in) {
            if (in.layer == 0)
                CHECK(current->rig.keys(current->manager->cache(), 0) == keys_before);
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                REQUIRE(in.lengths[h] == 50);
                for (int32_t j = 3; j < 50; ++j)
                    check_close(in.scores[h * in.stride + j],
                                wanted[in.layer * 2 + h][static_cast<size_t>(j)]);
            }
        });
        script.needs.flags = KEEL_POLICY_PREFILL_ONLY;
        script.needs.replay_chunk = 20;
        script.needs.replay_lead = 3;
        script.needs.replay_sinks = 2;
        TappedRun run(device, inputs_shape(), with(script, slack_budget(30)));
        current = &run;
        FakeReplayer forward(run);
        if (kinds == 1) {
            forward.opening_tokens = {3000, 3001};
            forward.skip = 5;
        }
        const auto skip = static_cast<int32_t>(forward.skip);
        run.manager->set_forward(&forward);
        forward.take(50);
        run.step(30, StepKind::prefill_chunk);
        run.step(20, StepKind::prefill_chunk);
        keys_before = run.rig.keys(run.manager->cache(), 0);

        // Computes the expected scores directly, each repetition in a fork.
        wanted.assign(4, std::vector<double>(50, 0.0));
        for (int32_t begin = skip; begin < 50; begin += 20) {
            const int32_t end = std::min(50, begin + 20);
            std::vector<int64_t> ids = begin == skip ? std::vector<int64_t>{1000, 1001}
                                                     : std::vector<int64_t>{2000, 2001, 2002};
            for (int32_t t = begin - (begin > skip ? 3 : 0); t < begin; ++t) ids.push_back(t);
            for (const int32_t id : forward.opening_tokens) ids.push_back(id);
            for (int32_t t = begin; t < end; ++t) ids.push_back(t);
            auto fork = run.manager->fork();
            std::vector<int32_t> positions;
            for (size_t i = 0; i < ids.size(); ++i)
                positions.push_back(50 + static_cast<int32_t>(i));
            fork->cache().append(positions, std::ssize(ids));
            run.rig.write(fork->cache(), ids, positions);
            for (uint32_t l = 0; l < 2; ++l) {
                for (size_t i = 0; i < ids.size(); ++i) {
                    std::vector<bool> sees(50 + ids.size(), false);
                    for (size_t j = 0; j < sees.size(); ++j) {
                        const auto slot = static_cast<int32_t>(j);
                        sees[j] = (slot < 2 && begin > 0) || (slot >= begin && slot < end) ||
                                  (j >= 50 && j <= 50 + i);
                    }
                    const auto p = run.probabilities(
                        *fork, l, run.rig.tokens().query(ids[i], positions[i]), {sees, sees});
                    for (size_t h = 0; h < 4; ++h) {
                        for (size_t j = 0; j < 50; ++j)
                            wanted[l * 2 + h / 2][j] = std::max(wanted[l * 2 + h / 2][j], p[h][j]);
                    }
                }
            }
        }
        const auto before = run.manager->cache().arena().bytes_in_use();
        run.manager->after_step(StepKind::prefill_end);
        CHECK(script.decided == 2);
        CHECK(std::vector(forward.asked.begin(), forward.asked.begin() + 3) ==
              std::vector<int32_t>{1000, 1001, kinds == 1 ? 3000 : 0});
        CHECK(std::ssize(forward.asked) ==
              2 + 2 * (3 + 3) + 50 - skip + 3 * std::ssize(forward.opening_tokens));
        CHECK(run.manager->tokens_seen() == 50);
        CHECK(run.manager->cache().arena().bytes_in_use() < before);
        run.step(1, StepKind::decode); // the cache has been compacted
        CHECK(run.manager->cache().positions(1, 1).back() == 50);
    }
}

TEST_CASE("A prompt that leaves no memory for its replay is refused before it is read") {
    Script script = scattering(KEEL_NEED_REPLAY, [](const keel_policy_input &) {});
    script.needs.flags = KEEL_POLICY_PREFILL_ONLY;
    script.needs.replay_chunk = 64;
    TappedRun run("reference", inputs_shape(), with(script, slack_budget(30)));
    FakeReplayer forward(run);
    run.manager->set_forward(&forward);
    std::string why;
    CHECK(run.manager->can_take(40, true, &why));
    CHECK_FALSE(run.manager->can_take(60, true, &why));
    CHECK_THAT(why, Contains("repeat the prompt") && Contains("room for 62 more tokens") &&
                        Contains("model.context = 96"));
}

TEST_CASE(
    "Forks continue with the data that their parent collected, for its policy and for others") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        std::vector<std::vector<float>> looked;
        const auto look = [&](const keel_policy_input &in) {
            std::vector<float> all;
            for (uint32_t h = 0; h < in.kv_heads; ++h)
                all.insert(all.end(), in.scores + h * in.stride,
                           in.scores + h * in.stride + in.lengths[h]);
            looked.push_back(std::move(all));
        };
        Script window = scattering(KEEL_NEED_WINDOW_SCORES, look),
               running = scattering(KEEL_NEED_RUNNING_SCORES, look);
        window.needs.window = 6;
        // Each policy alone.
        for (Script *script : {&window, &running}) {
            TappedRun alone(device, inputs_shape(), with(*script, slack_budget(30)));
            drive(alone, 8);
        }
        const auto wanted = std::move(looked);
        looked.clear();
        REQUIRE(wanted.size() >= 4);
        // Both policies from one prefill.
        Collected all = Collected::of(window.needs);
        REQUIRE(all.merge(Collected::of(running.needs)) == nullptr);
        TappedRun parent(device, inputs_shape(), {}, all);
        CHECK(parent.plan->keeps_all());
        parent.step(30, StepKind::prefill_chunk);
        parent.step(25, StepKind::prefill_chunk);
        std::vector<std::unique_ptr<PolicySetup>> plans;
        for (Script *script : {&window, &running}) {
            plans.push_back(std::make_unique<PolicySetup>(parent.rig.executor(), inputs_shape(),
                                                          parent.rig.executor().device().host(),
                                                          with(*script, slack_budget(30))));
            auto arm = parent.manager->fork_into(*plans.back());
            std::swap(arm, parent.manager);
            parent.manager->after_step(StepKind::prefill_end);
            auto again = parent.manager->fork(); // a fork of the fork
            std::swap(again, parent.manager);
            for (int i = 0; i < 8; ++i) parent.step(1, StepKind::decode);
            std::swap(arm, parent.manager);
        }
        CHECK(looked == wanted);
        CHECK(parent.manager->cache().max_length() == 55);
        CHECK(parent.manager->evictions() == 0);

        Script stats = scattering(KEEL_NEED_QUERY_STATS, [](const keel_policy_input &) {});
        PolicySetup other(parent.rig.executor(), inputs_shape(),
                          parent.rig.executor().device().host(), with(stats, slack_budget(30)));
        CHECK_THAT(error_text([&] { parent.manager->fork_into(other); }, ErrorKind::input),
                   Contains("policy scripted: this policy needs query_stats") &&
                       Contains("did not collect"));
    }
}

TEST_CASE("Collected data is saved and loaded with the cache, and collection continues") {
    for (const uint64_t need :
         {KEEL_NEED_WINDOW_SCORES, KEEL_NEED_RUNNING_SCORES, KEEL_NEED_QUERY_STATS}) {
        for (const std::string &device : kv_devices()) {
            INFO(device << " " << need_name(need));
            std::vector<std::vector<float>> looked;
            Script script = scattering(need, [&](const keel_policy_input &in) {
                std::vector<float> all;
                for (uint32_t h = 0; in.scores != nullptr && h < in.kv_heads; ++h)
                    all.insert(all.end(), in.scores + h * in.stride,
                               in.scores + h * in.stride + in.lengths[h]);
                if (in.query_sum != nullptr)
                    all.insert(all.end(), in.query_sum, in.query_sum + 4 * 32);
                looked.push_back(std::move(all));
            });
            script.needs.window = need == KEEL_NEED_WINDOW_SCORES ? 6 : 0;
            TappedRun a(device, inputs_shape(), with(script, slack_budget(30))),
                b(device, inputs_shape(), with(script, slack_budget(30)));
            drive(a, 13);
            Memory saved;
            a.manager->save(saved);
            b.step(20, StepKind::prefill_end);
            StateReader in(saved.bytes, "state");
            b.manager->load(in);
            CHECK(in.left() == 0);
            looked.clear();
            for (int i = 0; i < 20; ++i) a.step(1, StepKind::decode);
            const auto wanted = std::move(looked);
            looked.clear();
            for (int i = 0; i < 20; ++i) b.step(1, StepKind::decode);
            REQUIRE(!wanted.empty());
            CHECK(looked == wanted);
            for (size_t cut = 0; cut < saved.bytes.size(); cut += saved.bytes.size() / 30 + 1) {
                StateReader broken(std::span(saved.bytes).first(cut), "state");
                error_text([&] { b.manager->load(broken); });
                CHECK(b.manager->tokens_seen() == 0);
            }
        }
    }
}

TEST_CASE(
    "If tokens are summed, only all of them can be taken back, but last queries can be removed") {
    Script script = scattering(KEEL_NEED_RUNNING_SCORES, [](const keel_policy_input &) {});
    {
        TappedRun run("reference", inputs_shape(), with(script, slack_budget(60)));
        run.step(20, StepKind::prefill_end);
        CHECK_THAT(error_text([&] { run.manager->truncate(3); }, ErrorKind::usage),
                   Contains("policy scripted uses sums"));
        CHECK(run.manager->tokens_seen() == 20);
        run.manager->truncate(20);
        CHECK(run.manager->tokens_seen() == 0);
    }
    std::vector<float> seen;
    script = scattering(KEEL_NEED_WINDOW_SCORES, [&](const keel_policy_input &in) {
        if (in.layer == 0) seen.assign(in.scores, in.scores + in.lengths[0]);
    });
    script.needs.window = 6;
    TappedRun run("reference", inputs_shape(), with(script, slack_budget(20)));
    run.step(18, StepKind::prefill_chunk);
    run.step(10, StepKind::prefill_chunk);
    run.manager->truncate(10);
    run.step(10, StepKind::prefill_end);
    const std::vector<float> after = seen;
    TappedRun straight("reference", inputs_shape(), with(script, slack_budget(20)));
    straight.step(18, StepKind::prefill_chunk);
    straight.step(10, StepKind::prefill_end);
    CHECK(after == seen);
}
