#include "convert/export_item.hpp"
#include "convert/gguf_write.hpp"
#include "model/model_tensors.hpp"

#include <filesystem>
#include <fmt/format.h>

namespace keel {
namespace {

class ItemList {
  public:
    ItemList(const ModelSource &source, keel_dtype type)
        : source_(source), type_(type), from_gguf_(!std::filesystem::is_directory(source.path())) {}

    std::vector<ExportItem> make() {
        const ModelConfig &c = source_.config();
        const ModelParts model = model_parts(c);
        add(model.embedding);
        for (int64_t i = 0; i < c.layers; ++i) {
            const LayerParts layer = layer_parts(c, i);
            for (const WeightParts *weight : layer.all()) add(*weight);
        }
        add(model.final_norm);
        add(model.output);
        add_rope_factors();
        return std::move(items_);
    }

  private:
    void add(const WeightParts &weight) {
        const size_t first = items_.size(); // of the items of this weight
        for (const WeightParts::Part &part : weight.parts) {
            const TensorInfo &tensor = *source_.find(part.tensor);
            const std::string name =
                gguf::stored_tensor_name(*source_.config().architecture, part.tensor);
            if (weight.experts > 0 && stack_on(first, name, tensor, part)) continue;
            ExportItem &item = items_.emplace_back();
            item.tensors.push_back(&tensor);
            item.name = name;
            item.is_stack = weight.experts > 0;
            const bool matrix = weight.cols != 0;
            item.rows = matrix ? static_cast<uint64_t>(part.rows) : 1;
            item.columns = static_cast<uint64_t>(matrix ? weight.cols : part.rows);
            if (matrix && !weight.as_f32) item.type = matrix_type(item.columns);
            if (from_gguf_) continue;
            item.heads = heads(part.tensor);
            const bool norm = part.tensor.ends_with("norm.weight");
            if (norm) item.offset = static_cast<float>(source_.config().norm_offset);
        }
    }

    // Adds an expert's matrix to the item that has this name. Returns false if there is none yet.
    bool stack_on(size_t first, const std::string &name, const TensorInfo &tensor,
                  const WeightParts::Part &part) {
        for (size_t i = first; i < items_.size(); ++i) {
            if (items_[i].name != name) continue;
            items_[i].tensors.push_back(&tensor);
            items_[i].rows += static_cast<uint64_t>(part.rows);
            return true;
        }
        return false;
    }

    keel_dtype matrix_type(uint64_t columns) const {
        return columns % keel_dtype_block(type_) == 0 ? type_ : keel_dtype{KEEL_DTYPE_F16};
    }

    // Returns the number of heads if the rows of the tensor have another order in the folder than
    // in GGUF, else 0.
    int64_t heads(const std::string &name) const {
        const ModelConfig &c = source_.config();
        const gguf::ArchitectureName *row = gguf::find_by_architecture(c.architecture->name);
        if (row == nullptr || !row->interleaved) return 0;
        const LayerNames &names = c.architecture->names;
        if (name.find(fmt::format(".{}.", names.q)) != std::string::npos) return c.heads;
        return name.find(fmt::format(".{}.", names.k)) != std::string::npos ? c.kv_heads : 0;
    }

    void add_rope_factors() {
        const ModelConfig &c = source_.config();
        const RopeScaling &s = c.rope_scaling;
        const auto add = [&](std::string_view name, std::vector<float> computed) {
            ExportItem item;
            item.name = name;
            if (const TensorInfo *tensor = source_.find(name)) item.tensors.push_back(tensor);
            item.columns = static_cast<uint64_t>(c.rot / 2);
            if (item.tensors.empty() && computed.empty()) return;
            if (item.tensors.empty()) item.values = std::move(computed);
            items_.push_back(std::move(item));
        };
        const auto floats = [](const std::vector<double> &values) {
            return std::vector<float>(values.begin(), values.end());
        };
        add(gguf::rope_factors_tensor, s.kind == RopeScaling::Kind::llama3
                                           ? gguf::llama3_factors(c.rope_theta, c.rot, s)
                                           : std::vector<float>{});
        if (s.kind != RopeScaling::Kind::longrope) return;
        add(gguf::long_factors_tensor, floats(s.long_factors));
        add(gguf::short_factors_tensor, floats(s.factors));
    }

    const ModelSource &source_;
    keel_dtype type_; // of the matrices
    bool from_gguf_;
    std::vector<ExportItem> items_;
};

} // namespace

std::vector<ExportItem> export_items(const ModelSource &source, keel_dtype type) {
    return ItemList(source, type).make();
}

} // namespace keel
