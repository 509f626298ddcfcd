#pragma once

// Compares texts that several sequences generate at once with texts that each sequence generates
// alone.

#include "schedule/generate_batch.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace keel::test {

struct Wish {
    std::vector<int32_t> ids;
    int64_t tokens = 20;
};

// Returns prompts of different length, whose texts also end at different times.
inline std::vector<Wish> wishes(const Tokenizer &tokenizer, size_t n, int64_t tokens) {
    const std::vector<std::string> texts = {
        "Once upon a time there was a king who had three daughters, and the youngest of them was "
        "so fair "
        "that",
        "The wolf",
        "In the middle of the night the old woman rose, took a candle, and went down into the "
        "cellar",
        "A poor woodcutter lived with his wife",
        "Then the fox said to the bear",
        "There was once a miller who had a beautiful daughter, and it happened that he spoke with "
        "the king",
        "The king",
        "When the soldier came to the inn he asked for bread and wine, and the innkeeper"};
    std::vector<Wish> all;
    for (size_t i = 0; i < n; ++i)
        all.push_back({tokenizer.encode(texts[i % texts.size()]),
                       std::max<int64_t>(1, tokens - static_cast<int64_t>(3 * (i % 4)))});
    return all;
}

inline GenerateOptions options_of(const Pipeline &pipeline, const Wish &wish) {
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = wish.tokens;
    options.ignore_end = true;
    return options;
}

inline std::vector<std::vector<int32_t>> texts_alone(Pipeline &pipeline,
                                                     const std::vector<Wish> &all) {
    std::vector<std::vector<int32_t>> texts;
    for (const Wish &wish : all) {
        Session session(pipeline);
        texts.push_back(generate(session, wish.ids, options_of(pipeline, wish)).ids);
    }
    return texts;
}

inline std::vector<std::vector<int32_t>> texts_at_once(Pipeline &pipeline,
                                                       const std::vector<Wish> &all) {
    SessionBatch batch(pipeline);
    std::vector<std::vector<int32_t>> texts(all.size());
    size_t begun = 0;
    generate_batch(
        batch, pipeline,
        [&]() -> std::optional<TextRequest> {
            if (begun == all.size()) return std::nullopt;
            const Wish &wish = all[begun++];
            return TextRequest{wish.ids, options_of(pipeline, wish)};
        },
        [&](size_t number, const GenerateResult &result, const Error *error) {
            if (error != nullptr) FAIL(error->what());
            texts[number] = result.ids;
        });
    return texts;
}

// The bound of the difference between two logits. They differ because products of one row and of
// several rows round differently. A coarse cache makes the difference larger.
inline double parting_bound(const std::string &kv) {
    return kv == "f32" ? 1e-3 : kv == "f16" ? 0.02 : kv == "bf16" ? 0.15 : kv == "q8_0" ? 0.3 : 3.0;
}

// If a text differs from the text of the sequence alone, the logits of the first two different
// tokens must be as close as that rounding.
inline void check_same_texts(Pipeline &pipeline, const std::vector<Wish> &all,
                             const std::vector<std::vector<int32_t>> &alone,
                             const std::vector<std::vector<int32_t>> &at_once,
                             const std::string &kv) {
    REQUIRE(alone.size() == at_once.size());
    for (size_t t = 0; t < alone.size(); ++t) {
        INFO("text " << t);
        REQUIRE(alone[t].size() == at_once[t].size());
        if (alone[t] == at_once[t]) continue;
        const auto [mine, theirs] =
            std::mismatch(alone[t].begin(), alone[t].end(), at_once[t].begin());
        Session session(pipeline);
        session.prefill(all[t].ids);
        for (auto id = alone[t].begin(); id != mine; ++id) session.decode(*id);
        const auto logits = session.logits();
        const double gap = static_cast<double>(logits[static_cast<size_t>(*mine)]) -
                           logits[static_cast<size_t>(*theirs)];
        WARN("text " << t << " parts at token " << mine - alone[t].begin()
                     << ": the tokens' logits are " << gap << " apart");
        CHECK(gap <= 2 * parting_bound(kv));
    }
}

} // namespace keel::test
