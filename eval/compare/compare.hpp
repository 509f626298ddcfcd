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
    int64_t steps = 8;           // decoded behind it, with the second pipeline's greedy tokens
    bool resync = true; // give the first the second's outputs after each op: every op is judged on
                        // equal inputs
    std::optional<double> bound; // for all ops, instead of the table's
    std::optional<std::filesystem::path>
        save;          // folder for the inputs of the first op beyond its bound; unset: not saved
    Progress progress; // stage "compare", steps
};

// An element of an output that is further off than it may be.
struct CompareFinding {
    std::string step;  // "prefill of tokens 0..31", "decode of token 40"
    std::string label; // "decode layer 3: down"
    std::optional<int64_t> layer;
    std::string op, kernel_a, kernel_b, tensor, place;
    double a = 0, b = 0, error = 0, bound = 0;
    std::filesystem::path saved; // empty: not
};

// One kind of op over all layers and steps.
struct CompareRow {
    std::string part; // "down": the label without step and layer
    std::string op, kernel_a, kernel_b;
    uint64_t calls = 0, beyond = 0; // beyond: calls with an element beyond its bound
    double worst = 0, bound = 0;    // of the element nearest to or furthest beyond its bound
    double ratio = 0;               // worst / bound
    double squares = 0, scale = 0;  // sums of (a - b)^2 and b^2 over all elements
    // Root mean square of the differences, as a share of that of the second's values.
    double relative() const;
    std::string where; // label and place of it
};

// The residual stream after a layer when the two pipelines run freely: how differences grow through
// the model.
struct CompareLayer {
    int64_t layer = -1;            // -1: after the embedding
    double squares = 0, scale = 0; // as in CompareRow
    double largest = 0;            // difference of any element
    double relative() const;
};

// The two pipelines run freely, each with its own numbers.
struct CompareLogits {
    uint64_t rows = 0;
    double max_difference = 0, mean_kl = 0, max_kl = 0; // KL(second || first), nats
    uint64_t same_top = 0; // rows in which both have the same most likely token
};

struct CompareReport {
    std::string first, second; // their backends, for people
    uint64_t tokens = 0, ops = 0;
    std::optional<CompareFinding> finding; // the first
    uint64_t beyond = 0;                   // calls beyond their bounds
    std::vector<CompareRow> rows;          // in the order of their first call
    std::vector<CompareLayer> layers;      // each pipeline on its own numbers
    // The two pipelines have different dtypes of weights or cache. Differences then come from these
    // dtypes, and the bounds are wide.
    bool is_across_dtypes = false;
    std::string dtypes_first, dtypes_second; // "weights q4_0, KV f16"
    CompareLogits logits;
    bool passed() const { return !finding; }
};

// Runs both over the same tokens, op by op. Throws Error(input) if the two do not do the same ops:
// other models, policies or chunks.
CompareReport compare_pipelines(Pipeline &first, Pipeline &second, const CompareOptions &options);

} // namespace keel
