#include "run/engine_set.hpp"

#include <algorithm>

namespace keel {

void EngineSet::add(std::unique_ptr<Engine> engine, const std::shared_ptr<Device> &device) {
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end())
        devices_.push_back(device);
    engines_.push_back(std::move(engine));
}

Engine *EngineSet::find(std::string_view name) const {
    for (const auto &engine : engines_) {
        if (engine->name == name) return engine.get();
    }
    return nullptr;
}

Engine &EngineSet::acting() const {
    if (!decode().split.only_holds()) return decode();
    for (const auto &engine : engines_)
        if (!engine->split.only_holds()) return *engine;
    return decode();
}

const Device *EngineSet::lost_device() const {
    for (const auto &engine : engines_)
        if (const Device *lost = engine->executor->lost_device()) return lost;
    return nullptr;
}

Stream::Counters EngineSet::counters() const {
    Stream::Counters sum;
    for (const auto &device : devices_) sum += device->stream().counters();
    return sum;
}

void EngineSet::set_trace(Trace *trace) {
    for (const auto &engine : engines_) engine->executor->set_trace(trace);
}

void EngineSet::set_observer(const Observer &observer) {
    for (const auto &engine : engines_) {
        Executor &executor = *engine->executor;
        if (!observer) {
            executor.set_observer({});
            continue;
        }
        executor.set_observer(
            [observer, &executor](const PlannedOp &op, const keel_op_args *args, bool after) {
                observer(executor, op, args, after);
            });
    }
}

std::vector<const PlannedOp *> EngineSet::ops() const {
    std::vector<const PlannedOp *> all;
    for (const auto &engine : engines_) {
        const auto ops = engine->ops();
        all.insert(all.end(), ops.begin(), ops.end());
    }
    return all;
}

uint32_t EngineSet::step_tokens() const {
    uint32_t least = UINT32_MAX;
    for (const auto &engine : engines_) least = std::min(least, engine->graph->max_tokens());
    return least;
}

uint64_t EngineSet::weight_bytes() const {
    uint64_t bytes = 0;
    for (const auto &engine : engines_) bytes += engine->weights->bytes(engine->device());
    return bytes;
}

uint64_t EngineSet::weight_bytes_per_token(uint32_t tokens) const {
    if (takes_turns_) return decode().weights->bytes_per_token(decode().device(), tokens);
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->weights->bytes_per_token(engine->device(), tokens);
    return bytes;
}

uint64_t EngineSet::kv_bytes_per_token() const {
    if (takes_turns_) return decode().bytes_per_token();
    uint64_t bytes = 0;
    for (const auto &engine : engines_) bytes += engine->bytes_per_token();
    return bytes;
}

uint64_t EngineSet::held_window_bytes() const {
    if (takes_turns_) return decode().held_window_bytes();
    uint64_t bytes = 0;
    for (const auto &engine : engines_) bytes += engine->held_window_bytes();
    return bytes;
}

} // namespace keel
