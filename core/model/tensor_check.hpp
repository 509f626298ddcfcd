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

// The result of reading every value of a tensor. low, high, mean and rms include only the finite
// values.
struct TensorCheck {
    uint64_t elements = 0;
    uint64_t not_finite = 0; // number of NaNs and infinities
    // row-major index of the first value that is not finite
    std::optional<uint64_t> first_not_finite;
    double low = 0;
    double high = 0;
    double mean = 0;
    double rms = 0; // root mean square
};

// Reads the whole tensor in pieces, and returns the pages of each piece to the system. Any thread
// may call it. Throws Error(input) that names file and tensor if Keel cannot decode the type of the
// tensor.
TensorCheck check_tensor(const ModelSource &source, const TensorInfo &tensor);

struct BadTensor {
    std::string name, file; // names in the file
    uint64_t elements = 0, not_finite = 0;
    std::vector<int64_t> first_index; // index of the first value that is not finite
};

// Reads every value of every tensor and collects the tensors with values that are not finite.
class WeightsCheck {
  public:
    explicit WeightsCheck(const ModelSource &source)
        : source_(source), bad_(source.tensors().size()) {}

    // Checks tensors in the order of the files, so that the disk is read sequentially. Stops if no
    // tensor is left or `progress` returns false. `progress` gets the number of bytes read so far.
    // Any number of threads may call work() at the same time. It never throws; result() throws its
    // errors.
    void work(const std::function<bool(uint64_t bytes)> &progress);
    // Call it after work(). The result is in the order of the files. Throws the first error of
    // check_tensor().
    std::vector<BadTensor> result();

  private:
    const ModelSource &source_;
    std::vector<std::optional<BadTensor>> bad_; // one entry for each tensor
    std::atomic<size_t> next_{0};
    std::atomic<uint64_t> done_{0};
    std::mutex mutex_;
    std::exception_ptr error_;
};

} // namespace keel
