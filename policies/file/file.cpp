// A budget allocator that reads budgets for each layer, or for each layer and head, from a JSON
// file. It is useful for budgets that were measured earlier, and for heads that were classified
// earlier.
#include "bounded_json.hpp"

#include <keel/sdk_policy.hpp>

#include <string>

namespace {

using namespace keel::sdk;
using keel_file::refuse;
using nlohmann::json;

class File {
  public:
    static constexpr PluginInfo info = {
        "file", "0.1.0", "Keel", "MIT",
        "Gives each layer, or each head of each layer, what a JSON file says."};
    static constexpr keel_param_spec params[] = {{KEEL_HEADER(keel_param_spec), "path",
                                                  "JSON file with the budgets", KEEL_PARAM_PATH,
                                                  KEEL_PARAM_REQUIRED, 0, 0, nullptr, nullptr}};

    File(const Setup &setup, keel_allocator_needs &needs)
        : path_(setup.params.text("path")), layers_(setup.geometry.layers),
          heads_(setup.geometry.kv_heads) {
        const json document = keel_file::read_bounded_json(path_);
        if (!document.is_object()) refuse(path_, "expected an object with \"budgets\"");
        for (const auto &[key, value] : document.items()) {
            if (key != "budgets" && key != "unit" && key != "comment")
                refuse(path_, "unknown key \"" + key.substr(0, 40) +
                                  "\"; known are budgets, unit and comment");
        }
        const json unit = document.value("unit", json("weight"));
        if (unit != "weight" && unit != "share")
            refuse(path_, "unit: expected \"weight\" or \"share\"");
        absolute_ = unit == "share";
        read_budgets(document);
        for (uint32_t l = 0; l < layers_; ++l) {
            const double first = weights_[size_t{l} * heads_];
            if (first != weights_[0]) needs.flags |= KEEL_ALLOCATOR_BY_LAYER;
            for (uint32_t h = 1; h < heads_; ++h)
                if (weights_[size_t{l} * heads_ + h] != first) needs.flags |= KEEL_ALLOCATOR_RAGGED;
        }
        const double mean = std::accumulate(weights_.begin(), weights_.end(), 0.0) /
                            static_cast<double>(weights_.size());
        if (mean <= 0) refuse(path_, "budgets: expected a number above 0, found only 0");
        if (absolute_ && mean > 1 + 1e-9)
            refuse(path_,
                   "budgets: expected shares whose average is at most 1, found an average of " +
                       std::to_string(mean));
        mean_ = absolute_ ? std::min(mean, 1.0) : 1.0;
    }

    void allocate(const keel_allocator_input &in, int32_t *budgets) {
        const size_t rows = weights_.size();
        if (size_t{in.layers} * in.kv_heads != rows)
            throw Failure(KEEL_E_INVALID_ARG,
                          "the host requests budgets for %u layers with %u heads, but the "
                          "allocator was made for %u layers with %u heads",
                          in.layers, in.kv_heads, layers_, heads_);
        const std::vector<int64_t> least(rows, in.protected_slots);
        std::vector<int64_t> most(rows, INT32_MAX);
        const int64_t all = in.budget * static_cast<int64_t>(rows);
        int64_t total = all;
        if (absolute_) {
            total =
                std::max(in.protected_slots * static_cast<int64_t>(rows),
                         static_cast<int64_t>(std::floor(mean_ * static_cast<double>(all) + 1e-6)));
        } else {
            // A head cannot use more slots than it has. If the budget is less than all slots, the
            // unused part of its share goes to other heads.
            const int64_t held = std::accumulate(in.lengths, in.lengths + rows, int64_t{0});
            for (size_t i = 0; i < rows && held > all; ++i)
                most[i] = std::max<int64_t>(in.lengths[i], in.protected_slots);
        }
        const std::vector<int64_t> shares = share_out(weights_, least, most, total);
        std::transform(shares.begin(), shares.end(), budgets,
                       [](int64_t n) { return static_cast<int32_t>(n); });
    }

  private:
    void read_budgets(const json &document) {
        const auto found = document.find("budgets");
        if (found == document.end() || !found->is_array())
            refuse(path_,
                   "budgets: expected a list with a number, or a list of numbers, for each layer");
        if (found->size() != layers_)
            refuse(path_, "budgets: " + std::to_string(found->size()) +
                              " layers, but the number of layers of the model is " +
                              std::to_string(layers_));
        for (size_t l = 0; l < found->size(); ++l) {
            const json &layer = (*found)[l];
            const std::string where = "budgets[" + std::to_string(l) + "]";
            if (layer.is_array() && layer.size() != heads_)
                refuse(path_, where + ": " + std::to_string(layer.size()) +
                                  " heads, but the model has " + std::to_string(heads_) +
                                  " KV heads");
            for (size_t h = 0; h < heads_; ++h) {
                const json &number = layer.is_array() ? layer[h] : layer;
                if (!number.is_number() || !(number.get<double>() >= 0) ||
                    number.get<double>() > 1e9)
                    refuse(path_, where + (layer.is_array() ? "[" + std::to_string(h) + "]" : "") +
                                      ": expected a number from 0 to 1e9");
                weights_.push_back(number.get<double>());
            }
        }
    }

    std::string path_;
    uint32_t layers_, heads_;
    bool absolute_ = false;
    // If the shares in the file are absolute: their mean (at most 1). Otherwise: 1.
    double mean_ = 1;
    std::vector<double> weights_; // [layers, kv_heads]
};

} // namespace

KEEL_ALLOCATOR_PLUGIN(File)
