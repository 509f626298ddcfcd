#pragma once

#include "device/tensor.hpp"
#include "model/config.hpp"

#include <keel/kv.h>

#include <span>
#include <vector>

namespace keel {

// Rotation per token of each pair of a head's elements, in radians: theta^(-2i/rot), changed as the scaling says. [rot / 2].
// Linear: divided by the factor. Llama 3 (RoPE scaling of Llama 3.1): wavelengths above original / low_freq_factor are divided by the
// factor, those below original / high_freq_factor kept, a linear ramp in between. Factors: each divided by its own, of which there are
// rot / 2.
std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling);

// cos and sin of position * frequency as f32 tensors on a device, computed in float64. A ring: position p lies in row p % rows, and
// ensure() writes the rows that are wanted and not there, so an endless stream of positions needs constant memory. Rows of positions
// that lie `rows` or more behind the newest are gone.
class RopeTables {
  public:
    // What tables of so many rows take, on the device and on the host.
    static uint64_t bytes(int64_t rows, int64_t rot) {
        return static_cast<uint64_t>(rows) *
               (sizeof(int64_t) + static_cast<uint64_t>(rot / 2) * 2 * sizeof(float));
    }
    RopeTables(std::vector<double> frequencies, int64_t rows, keel_rope_mode mode);

    const keel_rope_tables *c() const {
        return &tables_;
    } // for args; valid for this object's life, moving included: it does not move
    RopeTables(const RopeTables &) = delete;
    RopeTables &operator=(const RopeTables &) = delete;

    void place(Device &device,
               keel_buffer_kind kind); // gives the tables memory; before that they are shapes for planning
    void ensure(std::span<const int32_t> positions); // queued before the ops that use them
    // Do two different positions among these (a few) share a row? They cannot be there at once.
    bool collide(std::span<const int32_t> positions) const;
    const std::vector<double> &frequencies() const { return frequencies_; }
    int64_t rows() const { return static_cast<int64_t>(held_.size()); }

  private:
    std::vector<double> frequencies_;
    std::vector<int64_t> held_; // the position in each row, -1: none
    Tensor cos_, sin_;          // f32 [rows, rot / 2]
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    std::vector<float> scratch_, split_; // kept, so that a step allocates nothing

    void write_rows(int64_t first, int64_t n);
};

} // namespace keel
