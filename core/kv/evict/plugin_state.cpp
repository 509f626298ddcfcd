#include "kv/evict/plugin_state.hpp"

#include "plugin/init_lock.hpp"

namespace keel {
namespace {

constexpr uint64_t max_state_bytes = uint64_t{1} << 30;

std::string reason(keel_status status) {
    const auto error = HostServices::take_error();
    return error && !error->message.empty() ? error->message : status_text(status);
}

} // namespace

PolicyState::PolicyState(const KvPlugin<keel_policy> &plugin, const keel_host *host,
                         const keel_geometry &geometry, uint64_t seed, keel_policy_needs &needs)
    : plugin_(plugin), host_(host), geometry_(geometry), seed_(seed) {
    create(needs);
}

PolicyState::PolicyState(const PolicyState &parent, keel_policy_state *state)
    : plugin_(parent.plugin_), host_(parent.host_), geometry_(parent.geometry_),
      seed_(parent.seed_), state_(state) {}

PolicyState::~PolicyState() { plugin_.table->destroy(state_); }

void PolicyState::create(keel_policy_needs &needs) {
    needs = {KEEL_HEADER(keel_policy_needs)};
    HostServices::drop_error();
    keel_policy_state *state = nullptr;
    const auto lock = lock_plugin_init();
    const keel_status status = plugin_.table->create(host_, &geometry_, plugin_.params,
                                                     plugin_.n_params, seed_, &needs, &state);
    if (status != KEEL_OK) fail(status, "could not be created");
    state_ = state;
}

void PolicyState::fail(keel_status status, const std::string &what) const {
    const std::string why = reason(status);
    plugin_.places.fail(why, "policy {} {}: {}", plugin_.name, what, why);
}

void PolicyState::decide(const keel_policy_input &input, keel_policy_decision &decision) {
    HostServices::drop_error();
    const keel_status status = plugin_.table->decide(state_, &input, &decision);
    if (status != KEEL_OK) fail(status, fmt::format("failed to decide on layer {}", input.layer));
}

void PolicyState::reset() {
    HostServices::drop_error();
    if (plugin_.table->reset != nullptr) {
        const keel_status status = plugin_.table->reset(state_);
        if (status != KEEL_OK) fail(status, "could not be reset");
        return;
    }
    plugin_.table->destroy(state_);
    state_ = nullptr;
    keel_policy_needs needs;
    create(needs);
}

void PolicyState::truncate(int64_t position) {
    if (plugin_.table->truncate == nullptr) return;
    HostServices::drop_error();
    const keel_status status = plugin_.table->truncate(state_, position);
    if (status != KEEL_OK) fail(status, fmt::format("could not go back to position {}", position));
}

std::unique_ptr<PolicyState> PolicyState::fork() const {
    HostServices::drop_error();
    if (plugin_.table->fork == nullptr) {
        keel_policy_needs needs;
        return std::make_unique<PolicyState>(plugin_, host_, geometry_, seed_, needs);
    }
    keel_policy_state *state = nullptr;
    const keel_status status = plugin_.table->fork(state_, &state);
    if (status != KEEL_OK) fail(status, "could not be forked");
    return std::unique_ptr<PolicyState>(new PolicyState(*this, state));
}

void PolicyState::check_savable(const KvPlugin<keel_policy> &plugin) {
    if (plugin.table->save != nullptr || plugin.table->fork == nullptr) return;
    plugin.places.fail("",
                       "policy {} keeps a state that it cannot save, so a session under this "
                       "policy cannot be saved",
                       plugin.name);
}

void PolicyState::save(StateWriter &out) const {
    check_savable(plugin_);
    if (plugin_.table->save == nullptr) {
        out.put(uint64_t{0});
        return;
    }
    HostServices::drop_error();
    uint64_t size = 0;
    keel_status status = plugin_.table->save(state_, nullptr, &size);
    if (status != KEEL_OK) fail(status, "could not report the size of its state");
    if (size > max_state_bytes) {
        plugin_.places.fail(
            "", "policy {} has a state of {} bytes to save; at most {} bytes are allowed",
            plugin_.name, size, max_state_bytes);
    }
    std::vector<std::byte> state(static_cast<size_t>(size));
    uint64_t written = size;
    status = plugin_.table->save(state_, state.data(), &written);
    if (status != KEEL_OK) fail(status, "could not save its state");
    if (written > size) {
        plugin_.places.fail("", "policy {} reported a state of {} bytes, but saved {} bytes",
                            plugin_.name, size, written);
    }
    out.put(written);
    out.write(state.data(), static_cast<size_t>(written));
}

void PolicyState::load(StateReader &in) {
    const auto size = in.get<uint64_t>("the policy's state");
    const auto state = in.take(size, "the policy's state");
    if (plugin_.table->load == nullptr) {
        if (size != 0)
            in.fail("the session has {} bytes of state for policy {}, which cannot load a state",
                    size, plugin_.name);
        return;
    }
    if (size == 0 && plugin_.table->save == nullptr) return;
    // A copy in aligned memory, because the plugin can read numbers from it directly.
    const std::vector<std::byte> aligned(state.begin(), state.end());
    HostServices::drop_error();
    const keel_status status = plugin_.table->load(state_, aligned.data(), size);
    if (status != KEEL_OK) fail(status, fmt::format("could not load its state from {}", in.name()));
}

AllocatorState::AllocatorState(const KvPlugin<keel_allocator> &plugin, const keel_host *host,
                               const keel_geometry &geometry, keel_allocator_needs &needs)
    : plugin_(plugin) {
    needs = {KEEL_HEADER(keel_allocator_needs)};
    HostServices::drop_error();
    const auto lock = lock_plugin_init();
    const keel_status status =
        plugin.table->create(host, &geometry, plugin.params, plugin.n_params, &needs, &state_);
    if (status != KEEL_OK) {
        state_ = nullptr;
        const std::string why = reason(status);
        plugin.places.fail(why, "budget allocator {} could not be created: {}", plugin.name, why);
    }
}

AllocatorState::~AllocatorState() { plugin_.table->destroy(state_); }

void AllocatorState::allocate(const keel_allocator_input &input, std::span<int32_t> budgets) {
    HostServices::drop_error();
    const keel_status status = plugin_.table->allocate(state_, &input, budgets.data());
    if (status != KEEL_OK) {
        const std::string why = reason(status);
        plugin_.places.fail(why, "budget allocator {} failed: {}", plugin_.name, why);
    }
    const int64_t least = input.scores != nullptr
                              ? input.protected_slots
                              : std::min(input.protected_slots, input.fixed_slots);
    int64_t sum = 0;
    for (size_t i = 0; i < budgets.size(); ++i) {
        if (budgets[i] < least) {
            plugin_.places.fail("",
                                "budget allocator {} gave layer {}, head {} a budget of {} slots, "
                                "but {} slots of the head are protected",
                                plugin_.name, i / input.kv_heads, i % input.kv_heads, budgets[i],
                                least);
        }
        sum += budgets[i];
    }
    const int64_t allowed = input.budget * static_cast<int64_t>(budgets.size());
    if (sum > allowed) {
        plugin_.places.fail(
            "", "budget allocator {} gave out {} slots in total, but the budget has only {}",
            plugin_.name, sum, allowed);
    }
}

} // namespace keel
