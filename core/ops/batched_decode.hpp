#pragma once

#include <keel/ext/draft/batched_decode.h>

#include <memory>

namespace keel {

class Executor;

// Calls a backend's extension keel.batched_decode/1. Not thread-safe: only the user of the stream
// calls it.
class BatchedDecode {
  public:
    // The args are templates, see keel_batched_decode.prepare. Returns NULL if the backend does not
    // have the extension or refuses the templates. Then a step computes the attention of one
    // sequence at a time. The executor must outlive the result.
    static std::unique_ptr<BatchedDecode> settle(Executor &executor, const keel_qkv_args &qkv,
                                                 const keel_attention_args &attention,
                                                 const keel_batch_kv &kv);

    // These functions queue the calls. They throw Error as Executor::run does.
    void qkv_prepare(const keel_qkv_args &args, const keel_batch_kv &kv);
    void attention(const keel_attention_args &args, const keel_batch_kv &kv);

  private:
    BatchedDecode(Executor &executor, const keel_batched_decode &table)
        : executor_(executor), table_(table) {}

    Executor &executor_;
    keel_batched_decode table_;
};

} // namespace keel
