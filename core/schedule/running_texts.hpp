#pragma once

#include "run/generate.hpp"
#include "run/session_batch.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

class RunningTexts;

// A text of RunningTexts: a session, the text that it generates, and what happens at events.
class RunningText {
  public:
    explicit RunningText(std::unique_ptr<Session> session) : session_(std::move(session)) {}
    virtual ~RunningText();
    RunningText(const RunningText &) = delete;
    RunningText &operator=(const RunningText &) = delete;

    Session &session() const { return *session_; }
    Generation &text() const { return *text_; }
    bool has_generation() const { return text_ != nullptr; } // begin() was called
    // Call it once, before RunningTexts::add(). Throws the errors of Generation's constructor.
    void begin(std::span<const int32_t> prompt, const GenerateOptions &options,
               Generation::Prompt how);

    virtual bool is_cancelled() const { return text_->is_cancelled(); }
    // A step begins that takes in tokens of the prompt. Returns the reader of their logits; NULL:
    // nothing reads them.
    virtual SessionBatch::RowReader *begin_chunk() { return nullptr; }
    // Returns true if prompt_read() reads Session::logits().
    virtual bool forks() const { return false; }
    // The whole prompt was read. The function may add further texts. If it throws Error, the text
    // fails.
    virtual void prompt_read(RunningTexts &) {}
    // The last call for a text that has ended.
    virtual void ended(GenerateResult result) = 0;
    // The last call for a text that has failed.
    virtual void failed(const Error &error) = 0;

  protected:
    // Destroys the generation, which no longer refers to the session then.
    std::unique_ptr<Session> take_session();

  private:
    friend class RunningTexts;
    std::unique_ptr<Session> session_;
    std::unique_ptr<Generation> text_;
    int32_t next_ = 0; // the token that the session takes in next
};

// The loop over the steps of several texts. Each step takes one token of each text whose prompt is
// read, and chunks of the prompts that are not read yet. Texts join and leave between two steps. If
// there is only one text and its prompt is read, the step is Session::decode, so that it is as fast
// as generate(). Not thread-safe.
class RunningTexts {
  public:
    RunningTexts(SessionBatch &batch, Pipeline &pipeline) : batch_(batch), pipeline_(pipeline) {}

    // At most Pipeline::batch() texts may run.
    void add(std::unique_ptr<RunningText> text) { texts_.push_back(std::move(text)); }
    size_t size() const { return texts_.size(); }
    bool empty() const { return texts_.empty(); }
    const RunningText &operator[](size_t i) const { return *texts_[i]; }
    // Chooses the next tokens, and runs one step. Texts that end or fail leave. Throws errors that
    // concern all texts, for example a lost device, and exceptions of callbacks that are no Error.
    void step();
    // All texts fail with this error and leave.
    void fail_all(const Error &error);

    struct Counters {
        uint64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
    };
    const Counters &counters() const { return counters_; }

  private:
    void choose();
    bool goes_on(RunningText &text);
    void add_decodes();
    void add_chunks();
    bool decode_alone();
    void run_batch();
    void note_chunk(size_t part);
    void leave(size_t text, const Error *error);
    void forget_gone();

    SessionBatch &batch_;
    Pipeline &pipeline_;
    std::vector<std::unique_ptr<RunningText>> texts_; // NULL: has left during this step
    std::vector<SessionBatch::Part> parts_;           // of the current step
    std::vector<size_t> text_of_;                     // [parts_]: index of texts_
    SessionBatch::Read read_ = SessionBatch::Read::greedy;
    const RunningText *alone_ = nullptr; // the text of the last step, if decode_alone() ran it
    Counters counters_;
};

} // namespace keel
