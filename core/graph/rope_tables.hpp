#pragma once

#include "device/tensor.hpp"
#include "model/rope_frequencies.hpp"

#include <keel/kv.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace keel {

// cos and sin of position * frequency, times the factor of RopeAngles, as f32 tensors on a device,
// computed in float64. The rows are a ring: position p has row p % rows, and ensure() writes the
// rows that are needed and missing. So positions can grow without limit in constant memory. A
// position that is `rows` or more before the newest position no longer has a row.
class RopeTables {
  public:
    // Returns the bytes of tables with this number of rows, on the device and on the host.
    static uint64_t bytes(int64_t rows, int64_t rot) {
        return static_cast<uint64_t>(rows) *
               (sizeof(int64_t) + static_cast<uint64_t>(rot / 2) * 2 * sizeof(float));
    }
    RopeTables(RopeAngles angles, int64_t rows, keel_rope_mode mode);

    // The tables in the form that args of ops need. Valid as long as this object.
    const keel_rope_tables *c() const { return &tables_; }
    RopeTables(const RopeTables &) = delete;
    RopeTables &operator=(const RopeTables &) = delete;

    // Allocates the tables. Before this call the tables have shapes but no memory, for planning.
    void place(Device &device, keel_buffer_kind kind);
    // Queues writes of the rows of these positions. Call it before the ops that use them.
    void ensure(std::span<const int32_t> positions);
    // Returns true if two different positions in `positions` have the same row. Then the tables
    // cannot hold all of these positions at once.
    bool collide(std::span<const int32_t> positions);
    const std::vector<double> &frequencies() const { return angles_.frequencies; }
    int64_t rows() const { return static_cast<int64_t>(held_.size()); }

  private:
    RopeAngles angles_;
    std::vector<int64_t> held_; // the position in each row, -1: none
    Tensor cos_, sin_;          // f32 [rows, rot / 2]
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    // Members, so that a step allocates no memory.
    std::vector<float> scratch_, split_;
    std::vector<std::pair<int64_t, int32_t>> row_and_position_;

    void write_rows(int64_t first, int64_t n);
};

// The RoPE tables of a model's layers. Some layers can have their own tables, see
// ModelConfig::has_own_rope().
class LayerRopes {
  public:
    // The tables for contexts of this number of tokens.
    LayerRopes(const ModelConfig &config, int64_t rows, int64_t context);

    const RopeTables &of(size_t layer) const { return config_.has_own_rope(layer) ? *own_ : all_; }
    // Like the functions of RopeTables with the same names, for all tables.
    void place(Device &device, keel_buffer_kind kind);
    void ensure(std::span<const int32_t> positions);
    bool collide(std::span<const int32_t> positions) { return all_.collide(positions); }

  private:
    const ModelConfig &config_;
    RopeTables all_;
    std::optional<RopeTables> own_;
};

} // namespace keel
