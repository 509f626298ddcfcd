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
    // Number of decode steps after the prompt. The decode steps use the greedy tokens of the second
    // pipeline.
    int64_t steps = 8;
    // If true, the outputs of each op in the first pipeline are overwritten with the outputs of the
    // second pipeline after the comparison. So both pipelines run every op on equal inputs.
    bool resync = true;
    // if set, this number is the bound of all ops and replaces the table in op_bounds.cpp
    std::optional<double> bound;
    // Folder for the inputs of the first op whose error is beyond the bound. nullopt: the inputs
    // are not saved.
    std::optional<std::filesystem::path> save;
    Progress progress; // reports stage "compare", in steps
};

// The first output element whose error is beyond the bound.
struct CompareFinding {
    std::string step;  // for example "prefill of tokens 0..31" or "decode of token 40"
    std::string label; // for example "decode layer 3: down"
    std::optional<int64_t> layer;
    std::string op, kernel_a, kernel_b, tensor, place;
    double a = 0, b = 0, error = 0, bound = 0;
    std::filesystem::path saved; // folder with the saved inputs; empty if nothing was saved
};

// The sum over all calls of one part of the model, for all layers and steps.
struct CompareRow {
    std::string part; // the op's label without step and layer, for example "down"
    std::string op, kernel_a, kernel_b;
    uint64_t calls = 0, beyond = 0; // beyond: calls with an element beyond the bound
    // Error and bound of the element with the largest ratio of error to bound.
    double worst = 0, bound = 0;
    double ratio = 0;              // worst / bound
    double squares = 0, scale = 0; // sums of (a - b)^2 and b^2 over all elements
    // Root mean square of the differences, divided by the root mean square of the second pipeline's
    // values.
    double relative() const;
    std::string where; // label of the op, and place of the element, for `worst`
};

// Compares the residual streams of both pipelines after a layer. Each pipeline uses its own
// numbers. So the rows show how differences grow through the model.
struct CompareLayer {
    int64_t layer = -1;            // -1 means after the embedding
    double squares = 0, scale = 0; // sums of (a - b)^2 and b^2 over all elements
    double largest = 0;            // largest absolute difference of an element
    double relative() const;
};

// Compares the logits of both pipelines. Each pipeline uses its own numbers.
struct CompareLogits {
    uint64_t rows = 0;
    // mean and largest KL(second || first), in nats
    double max_difference = 0, mean_kl = 0, max_kl = 0;
    uint64_t same_top = 0; // rows in which both pipelines have the same most likely token
};

struct CompareReport {
    std::string first, second; // names of the backends
    uint64_t tokens = 0, ops = 0;
    // the first element beyond its bound; nullopt if all elements are within their bounds
    std::optional<CompareFinding> finding;
    uint64_t beyond = 0;              // number of calls with an element beyond its bound
    std::vector<CompareRow> rows;     // in the order of their first call
    std::vector<CompareLayer> layers; // both pipelines use their own numbers
    // True if the pipelines have different dtypes of weights or cache. Different dtypes cause most
    // of the differences, so the bounds are then wide.
    bool is_across_dtypes = false;
    std::string dtypes_first, dtypes_second; // for example "weights q4_0, KV f16"
    CompareLogits logits;
    bool passed() const { return !finding; }
};

// Runs both pipelines on the same tokens and compares them op by op. Throws Error(input) if the
// pipelines run different ops, because the models, policies or chunks differ.
CompareReport compare_pipelines(Pipeline &first, Pipeline &second, const CompareOptions &options);

} // namespace keel
