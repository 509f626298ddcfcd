#pragma once

#include "server/service/engine.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel::server {

// The engine that runs a model: libkeel's scheduler.
class SchedulerEngine final : public Engine {
  public:
    // Loads the model; the arguments are those of api::Scheduler.
    SchedulerEngine(const std::string &target, const std::vector<std::string> &overrides,
                    const api::SchedulerOptions &options, const api::Progress &progress = {})
        : scheduler_(std::make_unique<api::Scheduler>(target, overrides, options, progress)),
          options_(options) {}

    uint64_t submit(api::Request request) override {
        return scheduler_->submit(std::move(request));
    }
    void cancel(uint64_t id) noexcept override { scheduler_->cancel(id); }
    void stop() override { scheduler_.reset(); }
    api::SchedulerStats stats() const override { return scheduler_->stats(); }
    std::vector<api::PolicyInfo> policies() const override { return scheduler_->policies(); }
    std::vector<api::PolicyKey> policy_keys() const override { return scheduler_->policy_keys(); }
    int64_t context() const override { return scheduler_->context(); }
    int64_t vocab_size() const override { return scheduler_->vocab_size(); }
    api::Generation defaults() const override { return scheduler_->defaults(); }
    int64_t most_sequences() const override { return options_.seats + options_.queue; }

  private:
    std::unique_ptr<api::Scheduler> scheduler_;
    api::SchedulerOptions options_;
};

} // namespace keel::server
