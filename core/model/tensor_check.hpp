#pragma once

#include "model/source.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// What reading every value of a tensor tells. Only the finite values count for low, high, mean and
// rms.
struct TensorCheck {
    uint64_t elements = 0;
    uint64_t not_finite = 0;                  // NaN and infinities
    std::optional<uint64_t> first_not_finite; // index of the first one, row-major
    double low = 0;
    double high = 0;
    double mean = 0;
    double rms = 0; // root of the mean square
};

// Reads the whole tensor in pieces, and returns the pages of each piece to the system. Safe on any
// thread. Throws Error(input) that names file and tensor if its type is none that Keel computes
// with.
TensorCheck check_tensor(const ModelSource &source, const TensorInfo &tensor);

struct BadTensor {
    std::string name, file; // as the file calls it
    uint64_t elements = 0, not_finite = 0;
    std::vector<int64_t> first_index; // of the first value that is not finite
};

// Reads every value of every tensor and collects the tensors with values that are not finite.
class WeightsCheck {
  public:
    explicit WeightsCheck(const ModelSource &source)
        : source_(source), bad_(source.tensors().size()) {}

    // Takes tensors in the order of the files, so that the disk is read in order, until none is
    // left or `progress` returns false. `progress` gets the bytes read so far. Any number of
    // threads may call this at the same time. Never throws; result() does.
    void work(const std::function<bool(uint64_t bytes)> &progress);
    // After work(): in the order of the files. Throws what check_tensor() threw first.
    std::vector<BadTensor> result();

  private:
    const ModelSource &source_;
    std::vector<std::optional<BadTensor>> bad_; // per tensor
    std::atomic<size_t> next_{0};
    std::atomic<uint64_t> done_{0};
    std::mutex mutex_;
    std::exception_ptr error_;
};

} // namespace keel
