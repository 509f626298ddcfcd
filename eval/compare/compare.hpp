#pragma once

#include "run/session.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace keel {

struct CompareOptions {
    std::vector<int32_t> prompt; // at least one token
    // Decode steps after the prompt, with the greedy tokens of the second pipeline.
    int64_t steps = 8;
    // After each op, overwrite the first pipeline's outputs with the second's. Then every op is
    // judged on equal inputs.
    bool resync = true;
    std::optional<double> bound; // one bound for all ops, instead of the table in op_bounds.cpp
    // Folder for the inputs of the first op beyond its bound; unset: they are not saved.
    std::optional<std::filesystem::path> save;
    Progress progress; // stage "compare", in steps
};

// The first element of an output whose error is beyond the bound.
struct CompareFinding {
    std::string step;  // "prefill of tokens 0..31", "decode of token 40"
    std::string label; // "decode layer 3: down"
    std::optional<int64_t> layer;
    std::string op, kernel_a, kernel_b, tensor, place;
    double a = 0, b = 0, error = 0, bound = 0;
    std::filesystem::path saved; // empty: not saved
};

// All calls of one part of the model, over layers and steps.
struct CompareRow {
    std::string part; // the op's label without step and layer: "down"
    std::string op, kernel_a, kernel_b;
    uint64_t calls = 0, beyond = 0; // beyond: calls that have an element beyond its bound
    double worst = 0, bound = 0;    // of the element with the largest ratio of error and bound
    double ratio = 0;               // worst / bound
    double squares = 0, scale = 0;  // sums of (a - b)^2 and b^2 over all elements
    // Root mean square of the differences, divided by the root mean square of the second's values.
    double relative() const;
    std::string where; // label and element of the worst value
};

// The residual stream after a layer when both pipelines run freely. It shows how differences grow
// through the model.
struct CompareLayer {
    int64_t layer = -1;            // -1: after the embedding
    double squares = 0, scale = 0; // as in CompareRow
    double largest = 0;            // the largest difference of an element
    double relative() const;
};

// The logits when both pipelines run freely, each with its own numbers.
struct CompareLogits {
    uint64_t rows = 0;
    double max_difference = 0, mean_kl = 0, max_kl = 0; // KL(second || first), nats
    uint64_t same_top = 0; // rows in which both have the same most likely token
};

struct CompareReport {
    std::string first, second; // names of the backends
    uint64_t tokens = 0, ops = 0;
    std::optional<CompareFinding> finding; // the first one
    uint64_t beyond = 0;                   // calls that have an element beyond its bound
    std::vector<CompareRow> rows;          // in the order of their first call
    std::vector<CompareLayer> layers;      // when each pipeline uses its own numbers
    // The pipelines have different dtypes of weights or cache. Then the dtypes cause most
    // differences, and the bounds are wide.
    bool is_across_dtypes = false;
    std::string dtypes_first, dtypes_second; // "weights q4_0, KV f16"
    CompareLogits logits;
    bool passed() const { return !finding; }
};

// Runs both pipelines over the same tokens, op by op. Throws Error(input) if they do not run the
// same ops, because the models, policies or chunks differ.
CompareReport compare_pipelines(Pipeline &first, Pipeline &second, const CompareOptions &options);

} // namespace keel
