#include "eval/replay/replay.hpp"

#include "eval/compare/op_bounds.hpp"
#include "eval/replay/stage.hpp"
#include "ops/op_table.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

std::string number(double value) { return fmt::format("{:.3g}", value); }

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::optional<double> saved_error(const SavedOp &saved, const OpOutput &reference, double bound) {
    const SavedTensor *actual = saved.find("actual", reference.values.name);
    if (actual == nullptr || !actual->present || actual->dtype != KEEL_DTYPE_F32 ||
        actual->elements() != std::ssize(reference.values.values))
        return std::nullopt;
    OpOutput then = reference;
    then.values.values = actual->floats();
    return output_error(then, reference.values, bound).error;
}

} // namespace

bool ReplayReport::passed() const {
    return std::all_of(outputs.begin(), outputs.end(),
                       [](const ReplayOutput &o) { return o.error.ratio <= 1; });
}

ReplayReport replay_op(const SavedOp &saved, const std::shared_ptr<Device> &device,
                       const ReplayOptions &options) {
    const SavedWeight weight = saved_weight(saved);
    // The reference runs first, because the reference checks shapes, lengths and indices. A backend
    // does not have to check shapes, lengths and indices.
    std::vector<OpOutput> expected;
    try {
        OpStage reference(saved, weight, Device::open_reference(device->host()));
        expected = reference.run();
    } catch (const Error &e) {
        if (e.kind() == ErrorKind::input || e.kind() == ErrorKind::resource) throw;
        throw_error(ErrorKind::input, "{}: the saved op is not consistent: {}", saved.file.string(),
                    e.what());
    }
    OpStage stage(saved, weight, device);
    const std::vector<OpOutput> mine = stage.run();
    ReplayReport r;
    r.op = op_name(saved.op);
    r.label = saved.label;
    r.file = saved.file.string();
    r.backend = fmt::format("{} ({})", device->plugin(), device->info().description);
    r.kernel = stage.kernel();
    r.saved_backend = saved.backend;
    r.saved_kernel = saved.kernel;
    r.weight = weight.dtype;
    r.weight_as_f32 = weight.as_f32;
    OpDifference difference;
    difference.fast = options.fast;
    difference.weight_a = difference.weight_b = weight.dtype;
    for (size_t i = 0; i < mine.size() && i < expected.size(); ++i) {
        const TensorValues &a = mine[i].values, &b = expected[i].values;
        if (a.values.size() != b.values.size())
            throw_error(ErrorKind::internal, "replay of {}: the outputs have different sizes",
                        r.op);
        ReplayOutput out;
        out.name = a.name;
        out.dtype = a.dtype;
        out.bound = a.dtype == KEEL_DTYPE_I32 ? 0
                    : options.bound           ? *options.bound
                                    : op_bound(saved.op, difference, coarser(a.dtype, b.dtype),
                                               mine[i].is_kv_row);
        out.error = output_error(mine[i], b, out.bound);
        if (!a.values.empty()) {
            out.place = a.place(out.error.element);
            out.here = a.values[out.error.element];
            out.reference = b.values[out.error.element];
        }
        out.saved_error = saved_error(saved, expected[i], out.bound);
        r.outputs.push_back(std::move(out));
    }
    return r;
}

std::string replay_text(const ReplayReport &r) {
    std::string out = fmt::format("{} ({}), from {}\n", r.label, r.op, r.file);
    out += fmt::format("here:  {}, kernel {}\n", r.backend, r.kernel);
    if (!r.saved_backend.empty())
        out += fmt::format("saved: {}, kernel {}\n", r.saved_backend, r.saved_kernel);
    if (r.weight_as_f32)
        out += "the saved values cannot be represented in the weight's dtype, so f32 was used; "
               "another "
               "kernel may have run\n";
    for (const ReplayOutput &o : r.outputs) {
        out += fmt::format(
            "{} ({}): largest difference from the reference {}, largest error {} at {} ({} "
            "against {}), bound {}: {}\n",
            o.name, keel_dtype_name(o.dtype), number(o.error.largest), number(o.error.error),
            o.place.empty() ? "-" : o.place, o.here, o.reference, number(o.bound),
            o.error.ratio <= 1 ? "within" : fmt::format("BEYOND, {} elements", o.error.beyond));
        if (o.saved_error)
            out += fmt::format("  the saved values have an error of {} against this reference\n",
                               number(*o.saved_error));
    }
    return out;
}

Json replay_json(const ReplayReport &r, std::string_view version) {
    Json outputs = Json::array();
    for (const ReplayOutput &o : r.outputs) {
        outputs.push_back(
            {{"name", o.name},
             {"dtype", keel_dtype_name(o.dtype)},
             {"max_abs_difference", number_json(o.error.largest)},
             {"error", number_json(o.error.error)},
             {"bound", o.bound},
             {"beyond", o.error.beyond},
             {"place", o.place},
             {"values", {number_json(o.here), number_json(o.reference)}},
             {"saved_error", o.saved_error ? number_json(*o.saved_error) : Json(nullptr)}});
    }
    return {{"version", version},
            {"passed", r.passed()},
            {"op", r.op},
            {"label", r.label},
            {"file", r.file},
            {"backend", r.backend},
            {"kernel", r.kernel},
            {"saved_backend", r.saved_backend},
            {"saved_kernel", r.saved_kernel},
            {"weight", keel_dtype_name(r.weight)},
            {"weight_as_f32", r.weight_as_f32},
            {"outputs", std::move(outputs)}};
}

} // namespace keel
