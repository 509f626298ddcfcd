#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace keel::conformance {
namespace {

// Returns the difference that rounding to the dtype can add to two results. Before the rounding,
// the results differ by less than one rounding step.
double rounding_of(keel_dtype dtype, double value, double block_peak) {
    switch (dtype) {
    case KEEL_DTYPE_F16: return std::fabs(value) / 1024 + 6e-8;
    case KEEL_DTYPE_BF16: return std::fabs(value) / 128;
    case KEEL_DTYPE_Q8_0: return 1.1 * block_peak / 127;
    case KEEL_DTYPE_Q4_0: return 1.2 * block_peak / 8;
    default: return 0;
    }
}

// Returns the largest magnitude of the block that contains each element. A block has 32 elements in
// block types, otherwise 1.
std::vector<double> block_peaks(const Tensor &t, const std::vector<double> &values) {
    const size_t block = keel_dtype_block(t.dtype);
    std::vector<double> peaks(values.size());
    for (size_t begin = 0; begin < values.size(); begin += block) {
        double peak = 0;
        const size_t end = std::min(begin + block, values.size());
        for (size_t i = begin; i < end; ++i) peak = std::max(peak, std::fabs(values[i]));
        std::fill(peaks.begin() + static_cast<int64_t>(begin),
                  peaks.begin() + static_cast<int64_t>(end), peak);
    }
    return peaks;
}

// Returns for each byte of the buffer whether it belongs to an element.
std::vector<bool> covered_bytes(const Tensor &t) {
    std::vector<bool> covered(t.image.size(), false);
    if (t.row_length() == 0) return covered;
    for (int64_t r = 0; r < t.rows(); ++r) {
        const auto begin = static_cast<int64_t>(t.row_offset(r));
        std::fill(covered.begin() + begin,
                  covered.begin() + begin + static_cast<int64_t>(t.row_bytes()), true);
    }
    return covered;
}

std::string place_text(const Tensor &t, size_t element) {
    std::string text;
    auto rest = static_cast<int64_t>(element);
    for (size_t i = t.shape.size(); i-- > 0;) {
        text = fmt::format("{}{}{}", rest % t.shape[i], text.empty() ? "" : ",", text);
        rest /= t.shape[i];
    }
    return text;
}

uint64_t hash_of(const char *text) {
    uint64_t hash = 1469598103934665603ULL;
    for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211ULL;
    return hash;
}

bool says_fast(const std::string &kernel, const Side &side) {
    if (side.table().op_plan != nullptr) return kernel.find("fast") != std::string::npos;
    return std::strstr(side.info().description, "compute fast") != nullptr;
}

} // namespace

void Suite::begin(keel_op op) {
    op_ = op;
    number_ = -1;
    report_ = {};
    rng_ = Rng(options_.seed ^ hash_of(op_name(op)));
}

bool Suite::next() {
    ++number_;
    rng_ = Rng((options_.seed ^ hash_of(op_name(op_))) + static_cast<uint64_t>(number_));
    return options_.only_case >= 0 ? number_ == options_.only_case : number_ % options_.every == 0;
}

std::vector<keel_dtype> Suite::activations() const {
    const keel_dtype own = subject_.info().activation_dtype;
    if (own == KEEL_DTYPE_F32) return {KEEL_DTYPE_F32};
    return {KEEL_DTYPE_F32, own};
}

void Suite::fail(const std::string &message) {
    ++report_.failures;
    if (static_cast<int>(report_.messages.size()) < options_.max_messages)
        report_.messages.push_back(message);
}

void Suite::note(double ratio, const std::string &name) {
    if (ratio <= report_.worst) return;
    report_.worst = ratio;
    report_.worst_case = name;
}

void Suite::check(Case &&c) {
    const int64_t number = number_;
    c.name = fmt::format("{} case {} seed {}: {}", op_name(op_), number, options_.seed, c.name);
    ++report_.cases;
    // These manners alternate. So each manner is tested with many shapes.
    check_in(c, {.planned = number % 2 == 0, .longer = number % 3 == 0, .larger = number % 4 == 0});
    if (number % 16 == 5)
        check_unknown_feature(c, uint64_t{1} << (number % 3 == 0 ? 63 : number % 3 == 1 ? 32 : 20));
}

void Suite::check_unknown_feature(const Case &c, uint64_t bit) {
    Stage stage(subject_, c.scene, {.more_features = bit});
    const keel_status status = c.call(stage);
    subject_.finish();
    if (stage.refused() && stage.calls() == 0)
        return; // the backend does not support this weight or shape in any manner
    if (status != KEEL_E_UNSUPPORTED)
        fail(fmt::format("{}: the unknown feature bit {:#x} gives status {} instead of UNSUPPORTED",
                         c.name, bit, status));
    if (stage.planned_unknown())
        fail(fmt::format("{}: op_plan accepts the unknown feature bit {:#x}", c.name, bit));
    check_untouched(c, stage, "refused an unknown feature, and yet wrote to a tensor");
}

void Suite::check_refused(Case &&c) {
    c.name = fmt::format("{} case {} seed {}: {}", op_name(op_), number_, options_.seed, c.name);
    ++report_.cases;
    Stage stage(subject_, c.scene, {});
    const keel_status status = c.call(stage);
    subject_.finish();
    if (status != KEEL_E_UNSUPPORTED && status != KEEL_E_INVALID_ARG)
        fail(fmt::format("{}: expected a refusal, found status {}", c.name, status));
    check_untouched(c, stage, "must be refused, and yet written to a tensor");
}

void Suite::check_untouched(const Case &c, Stage &stage, const char *what) {
    for (size_t i = 0; i < c.scene.tensors.size(); ++i) {
        if (stage.read(static_cast<int>(i)) == c.scene.tensors[i].image) continue;
        return fail(c.name + ": " + what);
    }
}

void Suite::check_in(const Case &c, Manner manner) {
    Stage mine(subject_, c.scene, manner);
    const keel_status status = c.call(mine);
    const keel_status ended = subject_.finish();
    if (mine.refused() && (status == KEEL_E_UNSUPPORTED || status == KEEL_E_INVALID_ARG)) {
        ++report_.refused;
        for (size_t i = 0; i < c.scene.tensors.size(); ++i) {
            if (mine.read(static_cast<int>(i)) != c.scene.tensors[i].image)
                fail(c.name + ": refused, but a tensor was written");
        }
        if (options_.complete && !c.may_refuse) fail(c.name + ": refused: " + subject_.error());
        return;
    }
    if (status != KEEL_OK || ended != KEEL_OK) {
        fail(fmt::format("{}: status {}, after waiting {}: {}", c.name, status, ended,
                         subject_.error()));
        return;
    }
    if (report_.kernels.empty()) report_.kernels = mine.kernel();
    Stage theirs(oracle_, c.scene, {});
    const keel_status expected = c.call(theirs);
    if (expected != KEEL_OK) {
        fail(fmt::format("{}: the reference refuses: status {}: {}", c.name, expected,
                         oracle_.error()));
        return;
    }
    for (size_t i = 0; i < c.scene.tensors.size(); ++i) {
        const auto place = static_cast<int>(i);
        const auto written = std::find_if(c.outputs.begin(), c.outputs.end(),
                                          [&](const Output &o) { return o.tensor == place; });
        const std::vector<uint8_t> got = mine.read(place);
        if (written == c.outputs.end()) {
            if (got != c.scene.tensors[i].image)
                fail(c.name + ": an input was written to: tensor " + std::to_string(i));
            continue;
        }
        const std::vector<double> sums =
            written->term_sums ? term_sums(c, *written) : std::vector<double>();
        compare(c, *written, got, theirs.read(place), sums, says_fast(mine.kernel(), subject_));
    }
}

std::vector<double> Suite::term_sums(const Case &c, const Output &out) {
    Scene magnitudes = c.scene;
    for (const int place : c.absolute)
        magnitudes.tensors[place] = c.scene.tensors[place].absolute();
    for (const auto &[place, tensor] : c.stand_ins) magnitudes.tensors[place] = tensor;
    Stage stage(oracle_, magnitudes, {});
    if (c.call(stage) != KEEL_OK) {
        fail(c.name + ": the reference refuses absolute values: " + oracle_.error());
        return {};
    }
    return magnitudes.tensors[out.tensor].values_of(stage.read(out.tensor));
}

void Suite::compare(const Case &c, const Output &out, const std::vector<uint8_t> &got,
                    const std::vector<uint8_t> &want, const std::vector<double> &sums, bool fast) {
    const Tensor &t = c.scene.tensors[out.tensor];
    const std::vector<bool> covered = covered_bytes(t);
    for (size_t i = 0; i < got.size(); ++i) {
        if (!covered[i] && got[i] != t.image[i]) {
            fail(fmt::format(
                "{}: byte {} outside of the output view was written ({} bytes from its start)",
                c.name, i, static_cast<int64_t>(i) - static_cast<int64_t>(t.offset)));
            return;
        }
    }
    const std::vector<double> y = t.values_of(got);
    const std::vector<double> r = t.values_of(want);
    const std::vector<double> before = t.values();
    const std::vector<double> peaks = block_peaks(t, r);
    const double bound = fast && out.fast_bound > 0 ? out.fast_bound : out.bound;
    for (size_t i = 0; i < y.size(); ++i) {
        const bool finite = std::isfinite(r[i]);
        double ratio = 0;
        if (!finite || out.bound == 0) {
            const bool same = std::isnan(r[i]) ? std::isnan(y[i]) : y[i] == r[i];
            ratio = same || (out.bound != 0 && !std::isfinite(y[i])) ? 0 : INFINITY;
        } else if (!std::isfinite(y[i])) {
            ratio = INFINITY;
        } else {
            const double s = i < sums.size() && std::isfinite(sums[i]) ? sums[i] : std::fabs(r[i]);
            const double allowed = bound * (1 + s) + rounding_of(t.dtype, r[i], peaks[i]);
            ratio = std::fabs(y[i] - r[i]) / allowed;
        }
        note(ratio, c.name);
        if (ratio > 1) {
            fail(fmt::format("{}: tensor {} {} at [{}] is {}, expected {} ({:.3g} times the bound "
                             "{}; before the call {})",
                             c.name, out.tensor, shape_text(t), place_text(t, i), y[i], r[i], ratio,
                             bound, before[i]));
            return;
        }
    }
}

void cases_of(Suite &suite, keel_op op) {
    suite.begin(op);
    if (op <= KEEL_OP_MATMUL || op == KEEL_OP_EMBED) return linear_cases(suite);
    if (op <= KEEL_OP_LAYER_NORM) return norm_cases(suite);
    if (op <= KEEL_OP_SCALED_ADD) return elementwise_cases(suite);
    if (op <= KEEL_OP_ZERO) return move_cases(suite);
    if (op == KEEL_OP_ROPE) return rope_cases(suite);
    if (op == KEEL_OP_ATTENTION) return attention_cases(suite);
    if (op == KEEL_OP_ATTENTION_SCORES) return attention_scores_cases(suite);
    if (op == KEEL_OP_ARGMAX_ROWS || op == KEEL_OP_TOP_K_ROWS) return rows_cases(suite);
    if (op >= KEEL_OP_CHOOSE_EXPERTS) return expert_cases(suite);
    if (op >= KEEL_OP_KEY_PROJECT && op <= KEEL_OP_QUERY_STATS) return policy_input_cases(suite);
    cache_cases(suite);
}

std::vector<int64_t> sizes(bool quick, std::initializer_list<int64_t> blocking, int64_t lanes) {
    std::vector<int64_t> out;
    for (int64_t n = 0; n <= 2 * lanes; n += quick && n >= 4 ? 5 : 1) out.push_back(n);
    for (const int64_t b : blocking) {
        for (const int64_t n : {b - 1, b, b + 1}) out.push_back(n);
    }
    for (const int64_t prime : {37, 97, 211}) out.push_back(prime);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

std::vector<Layout> layouts(bool quick) {
    if (quick) return {{0, 0}, {3, 1}};
    return {{0, 0}, {0, 1}, {0, 4}, {1, 0}, {16, 3}, {5, 13}};
}

void poison(Rng &rng, Tensor &t, float value, int places) {
    if (t.elements() == 0) return;
    std::vector<double> values = t.values();
    for (int i = 0; i < places; ++i) values[rng() % values.size()] = static_cast<double>(value);
    t.set({values.begin(), values.end()});
}

} // namespace keel::conformance
