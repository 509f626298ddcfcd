#pragma once

#include <keel/ext/draft/batched_decode.h>

#include <memory>

namespace keel {

class Executor;

// A backend's keel.batched_decode/1. Not thread-safe: for the stream's user.
class BatchedDecode {
  public:
    // NULL where the backend has no such extension, or it does not take these templates (as
    // keel_batched_decode.prepare wants them): then sequences go one by one. The executor outlives
    // this.
    static std::unique_ptr<BatchedDecode> settle(Executor &executor, const keel_qkv_args &qkv,
                                                 const keel_attention_args &attention,
                                                 const keel_batch_kv &kv);

    // Queue the calls. Throw Error as Executor::run does.
    void qkv_prepare(const keel_qkv_args &args, const keel_batch_kv &kv);
    void attention(const keel_attention_args &args, const keel_batch_kv &kv);

  private:
    BatchedDecode(Executor &executor, const keel_batched_decode &table)
        : executor_(executor), table_(table) {}

    Executor &executor_;
    keel_batched_decode table_;
};

} // namespace keel
