// End-to-end tests of generation on models/tiny: dtypes, sync strategies, policies, limits, and
// ends of texts.

#include "golden.hpp"
#include "platform/memory.hpp"
#include "run/generate.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

std::vector<std::string> strict_tiny(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu", "strict=true", "sampling.temperature=0"};
    sets.insert(sets.end(), more);
    return sets;
}

GenerateResult run(const std::vector<std::string> &sets, const std::string &prompt,
                   int64_t tokens) {
    Pipeline pipeline(pipeline::config_from_overrides(sets));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    return generate(session, pipeline.tokenizer()->encode(prompt), options);
}

const std::string story =
    "Once upon a time there was a king who had three daughters, and the youngest";

// Returns the largest difference between two distributions over the next token. Coarse dtypes of
// cache and weights make it larger.
double largest_gap(std::span<const float> a, std::span<const float> b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    return worst;
}

// Replaces one f32 of a written model by a NaN or by another value.
void poison(const std::filesystem::path &folder, const std::string &name, uint64_t element,
            float value = std::numeric_limits<float>::quiet_NaN()) {
    auto source = open_model_source(folder);
    const TensorInfo *tensor = source->find(name);
    REQUIRE(tensor != nullptr);
    const uint64_t at = tensor->offset + element * sizeof(float);
    const std::string file = source->file(*tensor).path();
    source.reset();
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at));
    out.write(reinterpret_cast<const char *>(&value), sizeof value);
    REQUIRE(out.flush());
}

} // namespace

TEST_CASE(
    "every KV dtype gives the text of an f32 cache, or logits within the error of the dtype") {
    Pipeline exact(pipeline::config_from_overrides(strict_tiny({"kv.dtype=f32"})));
    const std::vector<int32_t> prompt = exact.tokenizer()->encode(story);
    const std::vector<int32_t> greedy = run(strict_tiny({"kv.dtype=f32"}), story, 20).ids;
    for (const auto &[dtype, bound] : std::initializer_list<std::pair<std::string, double>>{
             {"f16", 0.02}, {"bf16", 0.15}, {"q8_0", 0.3}, {"q4_0", 3.0}}) {
        INFO(dtype);
        Pipeline coarse(pipeline::config_from_overrides(strict_tiny({"kv.dtype=" + dtype})));
        Session a(exact), b(coarse);
        a.prefill(prompt);
        b.prefill(prompt);
        for (const int32_t id : greedy) {
            CHECK(largest_gap(a.logits(), b.logits()) < bound);
            a.decode(id);
            b.decode(id);
        }
        CHECK(b.stats().kv_bytes < a.stats().kv_bytes);
    }
}

TEST_CASE("the sync strategy never changes the text") {
    const std::string text = run(strict_tiny({"sync=lazy"}), story, 20).text;
    for (const std::string strategy :
         {"auto", "eager", "{strategy: batched, ops: 1}", "{strategy: batched, ops: 7}"}) {
        INFO(strategy);
        CHECK(run(strict_tiny({"sync=" + strategy}), story, 20).text == text);
    }
}

TEST_CASE("keys and values may have different dtypes") {
    const GenerateResult result =
        run(strict_tiny({"kv.key_dtype=q8_0", "kv.value_dtype=q4_0"}), story, 8);
    CHECK(result.ids.size() == 8);
}

TEST_CASE("a policy that had nothing to evict is bitwise equal to none") {
    const std::vector<std::string> window = strict_tiny(
        {"policy.plugin=sliding_window", "policy.budget.tokens=512", "policy.protect.prefix=4"});
    Pipeline full(pipeline::config_from_overrides(strict_tiny({}))),
        windowed(pipeline::config_from_overrides(window));
    Session a(full), b(windowed);
    const std::vector<int32_t> prompt = full.tokenizer()->encode(story);
    a.prefill(prompt);
    b.prefill(prompt);
    for (int i = 0; i < 20; ++i) {
        REQUIRE(std::equal(a.logits().begin(), a.logits().end(), b.logits().begin()));
        const int32_t id = a.greedy();
        a.decode(id);
        b.decode(id);
    }
    CHECK(b.stats().evictions == 0);
}

TEST_CASE("a sliding window keeps its budget in both position modes, also for longer prompts") {
    std::string prompt;
    for (int i = 0; i < 12; ++i) prompt += story + " went into the wood. ";
    for (const std::string positions : {"absolute", "rerotated"}) {
        INFO(positions);
        const std::vector<std::string> sets = strict_tiny(
            {"policy.plugin=sliding_window", "policy.budget.tokens=96", "policy.protect.prefix=4",
             "policy.budget.slack=16", "policy.positions=" + positions});
        Pipeline pipeline(pipeline::config_from_overrides(sets));
        Session session(pipeline);
        session.prefill(pipeline.tokenizer()->encode(prompt));
        const KvCache &cache = session.cache().cache();
        CHECK(cache.max_length() <= 96);
        for (int i = 0; i < 100; ++i) {
            session.decode(session.greedy());
            REQUIRE(cache.max_length() <= 96 + 16 + 1);
        }
        CHECK(session.stats().evictions > 3);
        const auto kept = cache.positions(0, 0);
        CHECK(std::is_sorted(kept.begin(), kept.end()));
        CHECK(kept.back() == session.tokens() - 1);
        if (positions == "absolute") {
            CHECK(std::vector<int32_t>(kept.begin(), kept.begin() + 4) ==
                  std::vector<int32_t>{0, 1, 2, 3});
        } else { // distances follow the slots
            CHECK(kept.back() - kept.front() == static_cast<int32_t>(kept.size()) - 1);
        }
    }
}

TEST_CASE("a full cache stops the text and names the key to change") {
    const GenerateResult context = run(strict_tiny({"model.context=40"}), story, 100);
    CHECK(context.reason == StopReason::cache_full);
    CHECK(context.detail.find("model.context") != std::string::npos);
    CHECK(context.stats.prefill_tokens + context.stats.decode_tokens == 40);

    const GenerateResult cap = run(strict_tiny({"kv.max_mib=0.4", "kv.dtype=f16"}), story, 300);
    CHECK(cap.reason == StopReason::cache_full);
    CHECK(cap.detail.find("kv.max_mib") != std::string::npos);
    CHECK(cap.stats.kv_peak_bytes <= 0.4 * 1048576);
}

TEST_CASE("a prompt that does not fit is refused before anything is computed") {
    Pipeline pipeline(pipeline::config_from_overrides(strict_tiny({"model.context=8"})));
    Session session(pipeline);
    CHECK_THROWS_WITH(session.prefill(pipeline.tokenizer()->encode(story)),
                      Catch::Contains("model.context"));
    CHECK(session.tokens() == 0);
}

TEST_CASE("a model folder with an absurd context is refused before memory is allocated") {
    test::TempFolder folder;
    test::MiniLlama mini;
    test::make_mini_llama(folder.path(), mini);
    const std::filesystem::path config = folder / "config.json";
    std::ifstream in(config);
    nlohmann::json json = nlohmann::json::parse(in);
    PipelineOptions options;
    options.need_tokenizer = false;
    const auto open = [&](int64_t claimed, bool check_only, std::vector<std::string> sets = {}) {
        json["max_position_embeddings"] = claimed;
        std::ofstream(config) << json.dump();
        sets.insert(sets.end(), {"model.path=" + folder.path().string(), "backend.plugin=cpu"});
        options.check_only = check_only;
        return Pipeline(pipeline::config_from_overrides(sets), options).context();
    };
    const uint64_t before = peak_resident_bytes();
    for (const bool check_only : {true, false}) {
        INFO(check_only);
        const std::string all = test::error_text([&] { open(2147483647, check_only); });
        CHECK_THAT(all, Catch::Contains("model.context: expected 1 to 1073741824 tokens"));
        CHECK(open(2147483647, check_only, {"model.context=64"}) == 64);
        // This context is the largest int32. It is refused on any machine that does not have the
        // memory.
        const KvShape shape = [] {
            KvShape s;
            s.layers = 2, s.heads = s.kv_heads = 2, s.max_slots = KvShape::most_slots;
            return s;
        }();
        if (memory_info().total == 0 || memory_info().available > shape.book_bytes()) continue;
        const std::string books =
            test::error_text([&] { open(1073741824, check_only); }, ErrorKind::resource);
        CHECK_THAT(books,
                   Catch::Contains("1073741824 tokens") && Catch::Contains("lower model.context"));
    }
    CHECK(peak_resident_bytes() - before < (uint64_t{256} << 20));
}

TEST_CASE("a device for the reference backend is refused with its line, not ignored") {
    const auto open = [](const std::string &device) {
        PipelineOptions options;
        options.check_only = true;
        Pipeline(pipeline::config_from_overrides(std::vector<std::string>{
                     std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                     "backend.plugin=reference", "backend.device=" + device}),
                 options);
    };
    CHECK_THAT(test::error_text([&] { open("1"); }),
               Catch::StartsWith("--set backend.device: ") && Catch::Contains("found '1'"));
    open("auto");
}

TEST_CASE("stop strings, end tokens and the token limit end a text") {
    const GenerateResult plain = run(strict_tiny(), story, 40);
    CHECK(plain.reason == StopReason::max_tokens);
    CHECK(plain.ids.size() == 40);
    const std::string stop = plain.text.substr(plain.text.size() / 2, 5);

    Pipeline pipeline(pipeline::config_from_overrides(strict_tiny()));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 40;
    options.stop = {stop};
    std::string streamed;
    options.on_text = [&](std::string_view text) { streamed += text; };
    const GenerateResult stopped = generate(session, pipeline.tokenizer()->encode(story), options);
    CHECK(stopped.reason == StopReason::stop_string);
    CHECK(stopped.detail == stop);
    CHECK(stopped.text == plain.text.substr(0, plain.text.find(stop)));
    CHECK(streamed == stopped.text);

    // The caller's end tokens end a text also if the model's end tokens do not.
    session.reset();
    options.stop.clear();
    options.ignore_end = true;
    options.end_ids = {plain.ids[20]};
    const GenerateResult cut = generate(session, pipeline.tokenizer()->encode(story), options);
    CHECK(cut.reason == StopReason::end_token);
    CHECK(cut.ids.back() == plain.ids[20]);
    options.ignore_end = false;
    options.end_ids.clear();

    // After the answer to a recall document, an end token follows, as in training.
    session.reset();
    options.stop.clear();
    options.max_tokens = 100;
    const GenerateResult ended =
        generate(session,
                 pipeline.tokenizer()->encode(
                     "There is a pass key hidden in this text. Find it and remember it.\n"
                     "The king went to the wood. The pass key is 48213. Remember it. 48213 is "
                     "the pass key.\nThe wolf ran home.\nWhat is the pass key? The pass key is"),
                 options);
    CHECK(ended.reason == StopReason::end_token);
    CHECK(pipeline.tokenizer()->ends_generation(ended.ids.back()));
}

TEST_CASE("a seed makes sampled text reproducible") {
    const std::vector<std::string> sets =
        strict_tiny({"sampling.temperature=0.9", "sampling.seed=7"});
    const GenerateResult a = run(sets, story, 30), b = run(sets, story, 30);
    CHECK(a.ids == b.ids);
    CHECK(run(strict_tiny({"sampling.temperature=0.9", "sampling.seed=8"}), story, 30).ids !=
          a.ids);
}

TEST_CASE("cancelling ends the text after the current step") {
    Pipeline pipeline(pipeline::config_from_overrides(strict_tiny()));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.on_text = [&](std::string_view) { pipeline.host().request_cancel(); };
    const GenerateResult result = generate(session, pipeline.tokenizer()->encode(story), options);
    CHECK(result.reason == StopReason::cancelled);
    CHECK(result.ids.size() < 5);
}

TEST_CASE("weights quantized at load change the text's distribution little, and are reported") {
    Pipeline exact(pipeline::config_from_overrides(strict_tiny({"kv.dtype=f32"})));
    const std::vector<int32_t> prompt = exact.tokenizer()->encode(story);
    for (const auto &[dtype, bound] : std::initializer_list<std::pair<std::string, double>>{
             {"f16", 0.05}, {"q8_0", 0.6}, {"q4_0", 6.0}}) {
        INFO(dtype);
        Pipeline coarse(pipeline::config_from_overrides(
            strict_tiny({"model.weights=" + dtype, "kv.dtype=f32"})));
        CHECK(coarse.weights().dtype_name() == dtype);
        Session a(exact), b(coarse);
        a.prefill(prompt);
        b.prefill(prompt);
        CHECK(largest_gap(a.logits(), b.logits()) < bound);
    }
}

TEST_CASE("a value that is not finite stops the run with layer and position") {
    test::TempFolder folder;
    test::MiniLlama mini;
    test::make_mini_llama(folder.path(), mini);
    // The down projection of layer 1 makes one value NaN.
    poison(folder.path(), "model.layers.1.mlp.down_proj.weight", 0);
    PipelineOptions options;
    options.need_tokenizer = false;
    for (const std::string backend : {"cpu", "reference"}) {
        Pipeline pipeline(pipeline::config_from_overrides(std::vector<std::string>{
                              "model.path=" + folder.path().string(), "backend.plugin=" + backend}),
                          options);
        Session session(pipeline);
        const std::vector<int32_t> prompt{1, 2, 3};
        CHECK_THROWS_WITH(session.prefill(prompt),
                          Catch::Contains("layer 1") && Catch::Contains("position 0"));
    }
}

TEST_CASE("greedy decoding detects an infinity with one read per token") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    PipelineOptions options;
    options.need_tokenizer = false;
    for (const float value : {infinity, -infinity}) { // one of these values makes the logit -inf
        test::TempFolder folder;
        test::MiniLlama mini;
        test::make_mini_llama(folder.path(), mini);
        const std::vector<std::string> sets{"model.path=" + folder.path().string(),
                                            "backend.plugin=cpu"};
        const std::vector<int32_t> prompt{1, 2, 3};
        {
            Pipeline sound(pipeline::config_from_overrides(sets), options);
            Session session(sound);
            session.prefill(prompt);
            session.decode(4);
            session.greedy();
            CHECK(session.stats().decode_stream.reads == 1);
        }
        poison(folder.path(), "lm_head.weight", 200 * static_cast<uint64_t>(mini.hidden) + 5,
               value);
        Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        Session session(pipeline);
        session.prefill(prompt, true, 0);
        session.decode(4);
        CHECK_THAT(test::error_text([&] { session.greedy(); }, ErrorKind::runtime),
                   Catch::Contains("a logit that is not finite"));
    }
}

TEST_CASE("a value that is not finite is traced to its token, however many steps ago it occurred") {
    test::TempFolder folder;
    test::MiniLlama mini;
    mini.max_positions = 1024;
    test::make_mini_llama(folder.path(), mini);
    poison(folder.path(), "model.embed_tokens.weight",
           200 * static_cast<uint64_t>(mini.hidden) + 5);
    std::vector<int32_t> prompt(600, 3);
    prompt[7] = 200;
    PipelineOptions options;
    options.need_tokenizer = false;
    const auto open = [&](std::vector<std::string> sets) {
        sets.insert(sets.end(), {"model.path=" + folder.path().string(), "backend.plugin=cpu"});
        return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
    };
    const auto full = open({});
    REQUIRE(full->graph().max_tokens() < prompt.size());
    Session chunked(*full);
    CHECK_THAT(test::error_text([&] { chunked.prefill(prompt); }, ErrorKind::runtime),
               Catch::StartsWith("embedding at position 7 (token 200)"));
    Session decoding(*full);
    decoding.prefill(prompt, true, 0); // no logits are read, so the fault is not noticed yet
    decoding.decode(4);
    CHECK_THAT(test::error_text([&] { decoding.greedy(); }, ErrorKind::runtime),
               Catch::StartsWith("embedding at position 7 (token 200)"));

    const auto evicting = open({"policy.plugin=sliding_window", "policy.budget.tokens=64"});
    Session evicted(*evicting);
    CHECK_THAT(test::error_text([&] { evicted.prefill(prompt); }, ErrorKind::runtime),
               Catch::Contains(" at or before position 5"));
}
