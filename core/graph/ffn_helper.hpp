#pragma once

#include "graph/weights.hpp"
#include "ops/executor.hpp"

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace keel {

// Computes a slice of every layer's feed-forward network on a second backend while the first computes the rest: columns of gate and up,
// the same rows of what down reads, so that the two results add up. start() hands the network's input over and returns; finish() waits
// and hands the result back. In between the caller queues its own part: the two run at once, whatever kind of backend either is,
// because this one's calls are made on a thread of its own.
//
// The executor, its device and the weights are this object's alone while it lives. Not thread-safe. What the second backend fails with is
// thrown by finish().
class FfnHelper {
  public:
    // `weights` are of an FfnSlice, only_ffn. They and `executor` outlive this. Throws what Executor::plan throws.
    FfnHelper(Executor &executor, ModelWeights &weights, uint32_t max_tokens);
    ~FfnHelper();
    FfnHelper(const FfnHelper &) = delete;
    FfnHelper &operator=(const FfnHelper &) = delete;

    // Begins layer `layer` of the part that the weights hold. `h` [m, hidden] lies on another device, in that one's activation dtype:
    // it is waited for and read.
    void start(size_t layer, const Tensor &h);
    // Writes what came out, [m, hidden], into `out` on another device, f32 or an activation dtype.
    void finish(const Tensor &out);
    // Waits for what start() began, if finish() did not, and forgets it: of a step that fails in between.
    void abandon() noexcept;

    // Bytes that go over and back in a step of one token, of all layers, with an input of that dtype.
    uint64_t crossing_bytes_per_token(keel_dtype input) const;
    uint64_t crossed_bytes() const { return crossed_; }
    std::vector<const PlannedOp *> decode_ops() const;
    std::vector<const PlannedOp *> prefill_ops() const;

  private:
    struct LayerOps {
        std::vector<OpHandle> gate_up; // one for each part of the matrix
        OpHandle activation, down;
    };
    static std::vector<const PlannedOp *> listed(const std::vector<LayerOps> &layers);
    enum State : uint32_t { idle, asked, done, leaving };

    void make_workspace(bool with_memory);
    LayerOps plan(size_t layer, uint32_t m, const char *kind);
    void serve();
    void compute();
    keel_matmul_args matmul_args(const Tensor &x, const Tensor &bias, const Tensor &out) const;

    Executor &executor_;
    ModelWeights &weights_;
    const ModelConfig &config_;
    uint32_t max_tokens_;
    std::vector<LayerOps> decode_, prefill_;
    Tensor h_, gate_up_, gate_, up_, act_,
        out_; // A [m, hidden], A [m, 2 * slice], its halves, A [m, slice], f32 [m, hidden]

    // Between the caller and the thread: the one that has the turn owns them.
    size_t layer_ = 0;
    uint32_t m_ = 0;
    std::vector<std::byte> input_, output_; // as they go over
    std::exception_ptr error_;
    std::atomic<uint32_t> state_{idle};
    std::vector<std::byte> rows_; // the caller's, for copies and conversions
    std::vector<float> floats_;
    uint64_t crossed_ = 0;
    std::thread thread_;
};

} // namespace keel
