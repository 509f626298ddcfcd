#include "schedule/generate_batch.hpp"

#include "schedule/running_texts.hpp"

namespace keel {
namespace {

using Done = std::function<void(size_t, GenerateResult, const Error *)>;
using Sessions = std::vector<std::unique_ptr<Session>>;

class NumberedText final : public RunningText {
  public:
    NumberedText(std::unique_ptr<Session> session, size_t number, const Done &done, Sessions &free)
        : RunningText(std::move(session)), number_(number), done_(done), free_(free) {}

    void ended(GenerateResult result) override {
        free_.push_back(take_session());
        done_(number_, std::move(result), nullptr);
    }
    void failed(const Error &error) override {
        take_session().reset(); // before the next text begins
        done_(number_, {}, &error);
    }

  private:
    size_t number_;
    const Done &done_;
    Sessions &free_;
};

} // namespace

void generate_batch(
    SessionBatch &batch, Pipeline &pipeline,
    const std::function<std::optional<TextRequest>()> &next,
    const std::function<void(size_t number, GenerateResult result, const Error *error)> &done) {
    Sessions free;
    RunningTexts texts(batch, pipeline);
    const auto free_session = [&] {
        if (free.empty()) return batch.make_session();
        std::unique_ptr<Session> session = std::move(free.back());
        free.pop_back();
        session->reset();
        return session;
    };
    bool more = true;
    for (size_t number = 0; more || !texts.empty();) {
        while (more && texts.size() < pipeline.batch()) {
            const std::optional<TextRequest> prompt = next();
            more = prompt.has_value();
            if (!more) break;
            auto text = std::make_unique<NumberedText>(free_session(), number++, done, free);
            try {
                text->begin(prompt->ids, prompt->options, Generation::Prompt::read_by_caller);
            } catch (const Error &error) {
                if (text->session().is_broken()) throw;
                text->failed(error);
                continue;
            }
            texts.add(std::move(text));
        }
        if (!texts.empty()) texts.step();
    }
}

} // namespace keel
