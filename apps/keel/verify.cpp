#include "verify.hpp"

#include "console.hpp"
#include "interrupt.hpp"

#include "model/tensor_check.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>

namespace keel::cli {
namespace {

std::vector<int64_t> index_of(uint64_t flat, const std::vector<int64_t> &shape) {
    std::vector<int64_t> index(shape.size());
    for (size_t i = shape.size(); i-- > 0;) {
        const auto dim = static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
        index[i] = static_cast<int64_t>(flat % dim);
        flat /= dim;
    }
    return index;
}

// Workers take tensors in the order of the files, so that the disk is read in order.
class Job {
  public:
    explicit Job(const ModelSource &source) : source_(source), bad_(source.tensors().size()) {}

    void work() {
        for (size_t i = next_++; i < source_.tensors().size() && !interrupted(); i = next_++) {
            const TensorInfo &tensor = source_.tensors()[i];
            try {
                const TensorCheck check = check_tensor(source_, tensor);
                if (check.first_not_finite) {
                    bad_[i] = BadTensor{tensor.stored_name.empty() ? tensor.name : tensor.stored_name,
                                        source_.file(tensor).path(), check.elements, check.not_finite,
                                        index_of(*check.first_not_finite, tensor.shape)};
                }
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!error_) error_ = std::current_exception();
                next_ = source_.tensors().size();
            }
            done_ += tensor.bytes;
            console().progress("reading", done_, source_.total_bytes(), Console::Unit::bytes);
        }
    }

    std::vector<BadTensor> result() {
        if (error_) std::rethrow_exception(error_);
        std::vector<BadTensor> found;
        for (std::optional<BadTensor> &one : bad_) {
            if (one) found.push_back(*std::move(one));
        }
        return found;
    }

  private:
    const ModelSource &source_;
    std::vector<std::optional<BadTensor>> bad_; // per tensor
    std::atomic<size_t> next_{0};
    std::atomic<uint64_t> done_{0};
    std::mutex mutex_;
    std::exception_ptr error_;
};

} // namespace

Verification verify_weights(const ModelSource &source) {
    const auto start = std::chrono::steady_clock::now();
    HostServices host;
    const InterruptGuard guard(host);
    Job job(source);
    console().progress("reading", 0, source.total_bytes(), Console::Unit::bytes);
    const auto body = [](void *user, const ThreadTeam::Region &) { static_cast<Job *>(user)->work(); };
    if (host.team().run(0, body, &job) != ThreadTeam::Result::done) job.work();
    console().clear_progress();
    check_interrupt();
    Verification v;
    v.bad = job.result();
    v.tensors = source.tensors().size();
    v.bytes = source.total_bytes();
    v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return v;
}

} // namespace keel::cli
