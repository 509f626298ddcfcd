// C++17 helpers for authors of policies and budget allocators. The helpers are header-only and
// optional. policy.h and allocator.h describe the C interface that the helpers use.
//
// HOW IT WORKS. You write a class. One macro makes a whole plugin of it: entry symbol, descriptor,
// parameter table, table of functions. An object of the class is the state of one sequence: the
// host constructs it, calls decide() at each eviction, and destroys it. Calls on one object never
// overlap.
//
// EXAMPLE. A policy that keeps the keys with the largest norm, and the first `sinks` slots:
//
//   class Norms {
//     public:
//       static constexpr keel::sdk::PluginInfo info = {"norms", "1.0.0", "Me", "MIT",
//                                                      "Keeps the largest keys."};
//       static constexpr keel_param_spec params[] = {
//           KEEL_INT_PARAM("sinks", "4", 0, 4096, "first tokens that always stay")};
//
//       Norms(const keel::sdk::Setup &setup, keel_policy_needs &needs)
//           : sinks_(setup.params.integer("sinks")) {
//           needs.needs = KEEL_NEED_KEY_NORMS;
//       }
//       void decide(const keel::sdk::PolicyInput &in, keel::sdk::PolicyDecision &out) {
//           for (uint32_t h = 0; h < in.kv_heads(); ++h) {
//               std::copy_n(in.key_norms(h), in.length(h), out.scores(h));
//               out.stay_first(h, sinks_);
//           }
//       }
//
//     private:
//       int64_t sinks_;
//   };
//   KEEL_POLICY_PLUGIN(Norms)
//
// WHAT THE CLASS HAS. The class must have `info`, the constructor and decide(). It must have
// `params` if the policy has parameters. The class can also have the members below. For each member
// below that the class has, the plugin's table gets the function of the same name. For each member
// that the class does not have, the table has NULL.
//   void reset();                              the sequence starts again; without reset() the
//                                              host destroys the object and constructs another
//   void truncate(int64_t position);           the tokens from `position` on were removed
//   std::vector<unsigned char> save() const;   returns the object's state as bytes
//   void load(const unsigned char *, size_t);  sets the state from these bytes; required with
//                                              save()
// If the class has save(), the table also gets fork, which uses the copy constructor. If the
// objects of a class hold only the parameters, the class needs none of the members above.
//
// DEFAULTS. The constructor gets `needs` with these values, and changes only the values that
// differ:
//   granularity   KEEL_KEEP_HEAD_EQUAL: each KV head keeps slots of its own; all heads of a
//                 layer keep the same number
//   output        KEEL_OUTPUT_SCORES: decide() writes a score for each slot
//   all others    0
// A policy that never evicts derives from KeepsAll and needs no decide().
//
// ERRORS. The constructor and the members are allowed to throw. The helpers catch all exceptions. A
// Failure keeps its status and text. std::bad_alloc becomes KEEL_E_OUT_OF_MEMORY, and every other
// exception becomes KEEL_E_INTERNAL.
//
// Everything here exists since 0.1.
#ifndef KEEL_SDK_POLICY_HPP
#define KEEL_SDK_POLICY_HPP

#include "sdk.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <vector>

namespace keel::sdk {

// The texts of a plugin's descriptor (keel_plugin in plugin.h). Static strings. `id` is the name of
// the plugin's file without ".so".
struct PluginInfo {
    const char *id, *version, *vendor, *license, *doc;
};

// The argument of the constructor of a policy or an allocator.
struct Setup {
    // Valid as long as the object of the policy or allocator exists. The other members of Setup are
    // valid only during the constructor.
    const keel_host *host;
    // The sizes of the model. Members that an older host does not know are 0 or NULL.
    const keel_geometry &geometry;
    // The plugin's parameters.
    Params params;
    // Seed of the run. 0 for allocators.
    uint64_t seed;
};

// Makes a struct of the ABI: its header is set, all other members are 0.
template <typename T>
T blank() noexcept {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// ---- a policy's view of one layer --------------------------------------------------------------

// The input of decide(): keel_policy_input (policy.h) with checks. The input is valid only during
// the call of decide().
//
// A function that returns an array throws Failure(KEEL_E_INVALID_ARG) with the array's name if the
// host did not pass this array. In this case `needs` does not request the array, or the host is too
// old. h is the number of a KV head. An array of head h has entries for the slots 0..length(h)-1.
// Entries after these slots have no meaning.
class PolicyInput {
  public:
    // Throws Failure(KEEL_E_VERSION) if the struct has another major version or is too small.
    explicit PolicyInput(const keel_policy_input *input) {
        if (keel_adopt(&in_, sizeof in_, input, KEEL_PREFIX(keel_policy_input, protected_mask)) !=
            KEEL_OK)
            throw Failure(KEEL_E_VERSION, "the host's keel_policy_input has another ABI version; "
                                          "build the plugin for this Keel");
    }
    // The struct itself; members that an older host does not know are 0 or NULL.
    const keel_policy_input &raw() const noexcept { return in_; }
    keel_trigger trigger() const noexcept { return in_.trigger; }
    uint32_t layer() const noexcept { return in_.layer; }
    uint32_t kv_heads() const noexcept { return in_.kv_heads; }
    uint32_t heads() const noexcept { return in_.heads; }
    // Number of query heads that share a KV head.
    uint32_t group() const noexcept { return in_.kv_heads == 0 ? 0 : in_.heads / in_.kv_heads; }
    // Position of the next token: the number of tokens so far.
    int64_t next_position() const noexcept { return in_.next_position; }
    int64_t stride() const noexcept { return in_.stride; }
    // Number of queries in query_sum() and query_second(). Without KEEL_NEED_QUERY_STATS: in
    // scores().
    int64_t query_count() const noexcept { return in_.query_count; }
    // Number of slots of the head in use.
    int32_t length(uint32_t h) const noexcept { return in_.lengths[h]; }
    // Number of slots of the head that may stay, including protected slots.
    int32_t budget(uint32_t h) const noexcept { return in_.budgets[h]; }
    // Returns true if the slot is protected. It stays even if the policy's answer does not keep it.
    bool is_protected(uint32_t h, int64_t slot) const noexcept {
        return in_.protected_mask[h * in_.stride + slot] != 0;
    }

    // Position that RoPE encoded in the key of each slot, rising.
    const int32_t *positions(uint32_t h) const {
        return row(in_.positions, "positions", h * in_.stride);
    }
    // L2 norms of the keys or of the values of a head.
    const float *key_norms(uint32_t h) const {
        return row(in_.key_norms, "key_norms", h * in_.stride);
    }
    const float *value_norms(uint32_t h) const {
        return row(in_.value_norms, "value_norms", h * in_.stride);
    }
    // Reduced attention probability of each slot. With reduce_group NONE, h is the number of a
    // query head.
    const float *scores(uint32_t h) const { return row(in_.scores, "scores", h * in_.stride); }
    // Dot product of each key with key_sum().
    const float *key_anchor(uint32_t h) const {
        return row(in_.key_anchor, "key_anchor", h * in_.stride);
    }
    // Attention within pieces of the prompt, see keel_policy_input.
    const float *chunk_scores(uint32_t h) const {
        return row(in_.chunk_scores, "chunk_scores", h * in_.stride);
    }
    // Keys times the projection. The elements of slot j begin at [j * cols]. `cols` is
    // needs.projection_cols.
    const float *key_project(uint32_t h, uint32_t cols) const {
        return row(in_.key_project, "key_project", h * in_.stride * cols);
    }
    // The keys. The elements of slot j begin at [j * head_dim].
    const float *keys(uint32_t h, uint32_t head_dim) const {
        return row(in_.keys, "keys", h * in_.stride * head_dim);
    }
    // Sum of the head's keys, each divided by its L2 norm: [head_dim].
    const float *key_sum(uint32_t h, uint32_t head_dim) const {
        return row(in_.key_sum, "key_sum", int64_t{h} * head_dim);
    }
    // Sum of the queries before RoPE: [head_dim]. `head` is the number of a query head.
    const float *query_sum(uint32_t head, uint32_t head_dim) const {
        return row(in_.query_sum, "query_sum", int64_t{head} * head_dim);
    }
    // Sum of q q^T over the queries of query_sum(): [head_dim, head_dim].
    const float *query_second(uint32_t head, uint32_t head_dim) const {
        return row(in_.query_second, "query_second", int64_t{head} * head_dim * head_dim);
    }

  private:
    template <typename T>
    static const T *row(const T *array, const char *name, int64_t offset) {
        if (array == nullptr)
            throw Failure(KEEL_E_INVALID_ARG,
                          "the host passed no array %s; request it in the policy's needs", name);
        return array + offset;
    }
    keel_policy_input in_;
};

// The output of decide(): keel_policy_decision (policy.h) with checks. With KEEL_OUTPUT_SCORES use
// scores() and stay(). With KEEL_OUTPUT_KEEP use keep() and kept(). h is the number of a KV head.
// With granularity TOKEN or LAYER, h is 0. The output is valid only during the call of decide().
class PolicyDecision {
  public:
    // `stride` and `lengths` are the values of the input. stay_first() and stay_last() need the
    // lengths. Throws Failure(KEEL_E_VERSION) if the struct has another major version or is too
    // small.
    PolicyDecision(const keel_policy_decision *decision, int64_t stride,
                   const int32_t *lengths = nullptr)
        : stride_(stride), lengths_(lengths) {
        if (keel_adopt(&out_, sizeof out_, decision,
                       KEEL_PREFIX(keel_policy_decision, keep_count)) != KEEL_OK)
            throw Failure(KEEL_E_VERSION,
                          "the host's keel_policy_decision has another ABI version; "
                          "build the plugin for this Keel");
    }
    // The scores to write, one for each slot 0..length-1. Slots with higher scores stay. A NaN is
    // an error. Throws Failure(KEEL_E_INVALID_ARG) if the output is KEEL_OUTPUT_KEEP.
    float *scores(uint32_t h) {
        if (out_.scores == nullptr)
            throw Failure(KEEL_E_INVALID_ARG,
                          "the host expects keep-lists, not scores; declare KEEL_OUTPUT_SCORES");
        return out_.scores + h * stride_;
    }
    // Marks the slots begin..end-1: they stay at any score. The range may be empty. Throws
    // Failure(KEEL_E_VERSION) if the host is older than this function.
    void stay(uint32_t h, int64_t begin, int64_t end) {
        if (begin >= end) return;
        if (out_.stay == nullptr)
            throw Failure(KEEL_E_VERSION,
                          "the host is older than this policy and has no array stay; update Keel");
        std::memset(out_.stay + h * stride_ + begin, 1, static_cast<size_t>(end - begin));
    }
    // Mark the oldest or the newest n slots: they stay at any score. If the head has fewer slots,
    // all slots stay.
    void stay_first(uint32_t h, int64_t n) { stay(h, 0, std::min(n, length(h))); }
    void stay_last(uint32_t h, int64_t n) {
        stay(h, std::max<int64_t>(0, length(h) - n), length(h));
    }
    // The list to write: numbers of the slots that stay, strictly rising. Throws
    // Failure(KEEL_E_INVALID_ARG) if the output is KEEL_OUTPUT_SCORES.
    int32_t *keep(uint32_t h) {
        if (out_.keep == nullptr || out_.keep_count == nullptr)
            throw Failure(KEEL_E_INVALID_ARG,
                          "the host expects scores, not keep-lists; declare KEEL_OUTPUT_KEEP");
        return out_.keep + h * stride_;
    }
    // Sets the length of the list of head h.
    void kept(uint32_t h, int32_t count) { out_.keep_count[h] = count; }

  private:
    int64_t length(uint32_t h) const {
        if (lengths_ == nullptr)
            throw Failure(KEEL_E_INVALID_ARG,
                          "the lengths are unknown; pass them to PolicyDecision's constructor");
        return lengths_[h];
    }
    keel_policy_decision out_;
    int64_t stride_;
    const int32_t *lengths_;
};

// Base class of a policy that never evicts. The core does not call its decide(). If another host
// calls it, the answer is that all slots stay.
class KeepsAll {
  public:
    KeepsAll(const Setup &, keel_policy_needs &needs) noexcept {
        needs.granularity = KEEL_KEEP_TOKEN;
        needs.output = KEEL_OUTPUT_KEEP;
        needs.flags = KEEL_POLICY_KEEPS_ALL;
    }
    void decide(const PolicyInput &in, PolicyDecision &out) {
        std::iota(out.keep(0), out.keep(0) + in.length(0), 0);
        out.kept(0, in.length(0));
    }
};

// ---- tools -------------------------------------------------------------------------------------

// A pseudo-random number made from all 64 bits of x (splitmix64). The result is equal on every
// machine.
inline uint64_t mix(uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Calls fn(h) once for each h of 0..n-1, on the host's workers. Returns when all calls have
// returned. The first exception of fn is thrown again as a Failure. Must not be called inside
// another parallel region.
template <typename Fn>
void for_each_head(const keel_host *host, uint32_t n, const Fn &fn) {
    std::atomic<bool> failed{false};
    Outcome first;
    const keel_status status = parallel_for(host, n, 1, [&](int64_t begin, int64_t end) {
        try {
            for (int64_t h = begin; h < end; ++h)
                fn(static_cast<uint32_t>(h));
        } catch (...) {
            if (!failed.exchange(true)) first.take_current_exception();
        }
    });
    if (failed) throw Failure(first.status, first.text);
    if (status != KEEL_OK)
        throw Failure(status, "the host's worker threads could not run the function");
}

// Divides `total` into shares in proportion to `weights`, which are 0 or more. Share i is at least
// least[i] and at most most[i]. The caller makes sure that the sum of `least` is at most `total`.
// The sum of the shares is exactly `total`, unless the sum of `most` is smaller. Shares are rounded
// by the largest remainder; if remainders are equal, the first share gets the rest.
inline std::vector<int64_t> share_out(std::vector<double> weights,
                                      const std::vector<int64_t> &least,
                                      const std::vector<int64_t> &most, int64_t total) {
    const size_t n = weights.size();
    const double largest = n == 0 ? 0 : *std::max_element(weights.begin(), weights.end());
    for (double &weight : weights)
        weight = largest > 0 ? weight / largest : 0;
    const auto real_share = [&](size_t i, double factor) {
        return std::min(std::max(weights[i] * factor, static_cast<double>(least[i])),
                        static_cast<double>(std::max(most[i], least[i])));
    };
    const auto sum = [&](double factor) {
        double s = 0;
        for (size_t i = 0; i < n; ++i)
            s += real_share(i, factor);
        return s;
    };
    double low = 0, high = 1; // the factor at which the shares add up to the total is between these
                              // two numbers
    for (int i = 0; i < 400 && sum(high) < static_cast<double>(total); ++i)
        high *= 2;
    for (int i = 0; i < 200; ++i) {
        const double middle = low + (high - low) / 2;
        (sum(middle) < static_cast<double>(total) ? low : high) = middle;
    }
    std::vector<int64_t> shares(n);
    std::vector<double> rest(n);
    int64_t left = total;
    for (size_t i = 0; i < n; ++i) {
        const double exact = real_share(i, high);
        shares[i] = std::max(least[i], static_cast<int64_t>(std::floor(exact + 1e-9)));
        rest[i] = exact - static_cast<double>(shares[i]);
        left -= shares[i];
    }
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return rest[a] > rest[b]; });
    for (bool moved = true; left != 0 && moved;) {
        moved = false;
        for (size_t k = 0; k < n && left > 0; ++k) {
            if (shares[order[k]] >= most[order[k]]) continue;
            ++shares[order[k]], --left, moved = true;
        }
        for (size_t k = n; k-- > 0 && left < 0;) {
            if (shares[order[k]] <= least[order[k]]) continue;
            --shares[order[k]], ++left, moved = true;
        }
    }
    return shares;
}

// ---- the glue ----------------------------------------------------------------------------------

namespace detail {

// Tests which optional members a class has.
template <typename T, typename = void>
struct HasReset : std::false_type {};
template <typename T>
struct HasReset<T, std::void_t<decltype(std::declval<T &>().reset())>> : std::true_type {};
template <typename T, typename = void>
struct HasTruncate : std::false_type {};
template <typename T>
struct HasTruncate<T, std::void_t<decltype(std::declval<T &>().truncate(int64_t{}))>>
    : std::true_type {};
template <typename T, typename = void>
struct HasSave : std::false_type {};
template <typename T>
struct HasSave<T, std::void_t<decltype(std::declval<const T &>().save())>> : std::true_type {};

// The rows of T::params as an array of pointers, for the descriptor. Empty if there is no
// T::params.
template <typename T, typename = void>
struct ParamRows {
    static constexpr uint32_t size = 0;
    static const keel_param_spec *const *rows() noexcept { return nullptr; }
};
template <typename T>
struct ParamRows<T, std::void_t<decltype(T::params)>> {
    static constexpr uint32_t size = static_cast<uint32_t>(std::size(T::params));
    static const keel_param_spec *const *rows() noexcept {
        static const auto pointers = [] {
            std::array<const keel_param_spec *, size> all{};
            for (uint32_t i = 0; i < size; ++i)
                all[i] = &T::params[i];
            return all;
        }();
        return pointers.data();
    }
};

// Copies the host's struct. Throws Failure(KEEL_E_VERSION) if it has another major version or is
// too small.
inline keel_geometry adopt_geometry(const keel_geometry *geometry) {
    keel_geometry mine;
    if (keel_adopt(&mine, sizeof mine, geometry, KEEL_PREFIX(keel_geometry, context)) != KEEL_OK)
        throw Failure(KEEL_E_VERSION, "the host's keel_geometry has another ABI version; "
                                      "build the plugin for this Keel");
    return mine;
}

// Writes the out-struct of create. Throws Failure(KEEL_E_VERSION) if the plugin has set a member
// that the host's struct does not have, because the host would ignore this member.
template <typename Needs>
void hand_over(Needs *out, const Needs &mine) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&mine);
    for (size_t i = out->h.struct_size; i < sizeof mine; ++i) {
        if (bytes[i] == 0) continue;
        throw Failure(KEEL_E_VERSION,
                      "this Keel is too old for the plugin: its struct has %u bytes, the plugin "
                      "sets byte %zu; update Keel, or build the plugin with its headers",
                      static_cast<unsigned>(out->h.struct_size), i);
    }
    keel_emit(out, &mine, sizeof mine);
}

// The struct to which a keel_policy_state or keel_allocator_state points: the object, and the host
// for error texts.
template <typename T>
struct Held {
    template <typename... Args>
    explicit Held(const keel_host *a_host, Args &&...args)
        : host(a_host), object(std::forward<Args>(args)...) {}
    const keel_host *host;
    T object;
};

// The functions of the tables. They call the members of the object and turn exceptions into
// statuses.
template <typename T>
struct PolicySlots {
    using State = Held<T>;
    static State &of(keel_policy_state *state) noexcept {
        return *reinterpret_cast<State *>(state);
    }
    static const State &of(const keel_policy_state *state) noexcept {
        return *reinterpret_cast<const State *>(state);
    }
    static void hand_out(std::unique_ptr<State> state, keel_policy_state **out) noexcept {
        *out = reinterpret_cast<keel_policy_state *>(state.release());
    }

    static keel_status KEEL_CALL create(const keel_host *host, const keel_geometry *geometry,
                                        const keel_param *const *params, uint32_t n, uint64_t seed,
                                        keel_policy_needs *needs,
                                        keel_policy_state **out) noexcept {
        return guard(host, [&] {
            const keel_geometry model = adopt_geometry(geometry);
            auto mine = blank<keel_policy_needs>();
            mine.granularity = KEEL_KEEP_HEAD_EQUAL;
            mine.output = KEEL_OUTPUT_SCORES;
            auto state =
                std::make_unique<State>(host, Setup{host, model, Params(params, n), seed}, mine);
            hand_over(needs, mine);
            hand_out(std::move(state), out);
        });
    }
    static void KEEL_CALL destroy(keel_policy_state *state) noexcept {
        delete reinterpret_cast<State *>(state);
    }
    static keel_status KEEL_CALL decide(keel_policy_state *state, const keel_policy_input *input,
                                        keel_policy_decision *decision) noexcept {
        return guard(of(state).host, [&] {
            const PolicyInput in(input);
            PolicyDecision out(decision, in.stride(), in.raw().lengths);
            of(state).object.decide(in, out);
        });
    }
    static keel_status KEEL_CALL reset(keel_policy_state *state) noexcept {
        return guard(of(state).host, [&] { of(state).object.reset(); });
    }
    static keel_status KEEL_CALL fork(const keel_policy_state *state,
                                      keel_policy_state **out) noexcept {
        return guard(of(state).host, [&] { hand_out(std::make_unique<State>(of(state)), out); });
    }
    static keel_status KEEL_CALL truncate(keel_policy_state *state, int64_t position) noexcept {
        return guard(of(state).host, [&] { of(state).object.truncate(position); });
    }
    static keel_status KEEL_CALL save(const keel_policy_state *state, void *data,
                                      uint64_t *size) noexcept {
        return guard(of(state).host, [&] {
            const std::vector<unsigned char> bytes = of(state).object.save();
            if (data != nullptr && *size < bytes.size())
                throw Failure(KEEL_E_INVALID_ARG,
                              "the state has %zu bytes, but the host has room for %llu",
                              bytes.size(), static_cast<unsigned long long>(*size));
            if (data != nullptr && !bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
            *size = bytes.size();
        });
    }
    static keel_status KEEL_CALL load(keel_policy_state *state, const void *data,
                                      uint64_t size) noexcept {
        return guard(of(state).host, [&] {
            of(state).object.load(static_cast<const unsigned char *>(data),
                                  static_cast<size_t>(size));
        });
    }
};

template <typename T>
struct AllocatorSlots {
    using State = Held<T>;
    static State &of(keel_allocator_state *state) noexcept {
        return *reinterpret_cast<State *>(state);
    }

    static keel_status KEEL_CALL create(const keel_host *host, const keel_geometry *geometry,
                                        const keel_param *const *params, uint32_t n,
                                        keel_allocator_needs *needs,
                                        keel_allocator_state **out) noexcept {
        return guard(host, [&] {
            const keel_geometry model = adopt_geometry(geometry);
            auto mine = blank<keel_allocator_needs>();
            auto state =
                std::make_unique<State>(host, Setup{host, model, Params(params, n), 0}, mine);
            hand_over(needs, mine);
            *out = reinterpret_cast<keel_allocator_state *>(state.release());
        });
    }
    static void KEEL_CALL destroy(keel_allocator_state *state) noexcept {
        delete reinterpret_cast<State *>(state);
    }
    static keel_status KEEL_CALL allocate(keel_allocator_state *state,
                                          const keel_allocator_input *input,
                                          int32_t *budgets) noexcept {
        return guard(of(state).host, [&] {
            keel_allocator_input mine;
            if (keel_adopt(&mine, sizeof mine, input, KEEL_PREFIX(keel_allocator_input, lengths)) !=
                KEEL_OK)
                throw Failure(KEEL_E_VERSION,
                              "the host's keel_allocator_input has another ABI version; "
                              "build the plugin for this Keel");
            of(state).object.allocate(mine, budgets);
        });
    }
};

// Makes the descriptor of class T.
template <typename T>
keel_plugin describe(keel_plugin_kind kind, const void *vtable) noexcept {
    auto p = blank<keel_plugin>();
    p.min_host_abi = KEEL_ABI_VERSION;
    p.kind = kind;
    p.id = T::info.id;
    p.version = T::info.version;
    p.vendor = T::info.vendor;
    p.license = T::info.license;
    p.doc = T::info.doc;
    p.build_info = __VERSION__;
    p.sanitizer = KEEL_SANITIZER_HERE;
    p.n_params = ParamRows<T>::size;
    p.params = ParamRows<T>::rows();
    p.vtable = vtable;
    return p;
}

} // namespace detail

// The table of functions of a policy class. It is static data.
template <typename T>
const keel_policy &policy_table() noexcept {
    static const keel_policy table = [] {
        using Slots = detail::PolicySlots<T>;
        auto t = blank<keel_policy>();
        t.create = Slots::create;
        t.destroy = Slots::destroy;
        t.decide = Slots::decide;
        if constexpr (detail::HasReset<T>::value) t.reset = Slots::reset;
        if constexpr (detail::HasTruncate<T>::value) t.truncate = Slots::truncate;
        if constexpr (detail::HasSave<T>::value) {
            t.fork = Slots::fork;
            t.save = Slots::save;
            t.load = Slots::load;
        }
        return t;
    }();
    return table;
}

// The table of functions of an allocator class. It is static data. The class has `info`, `params`
// if it has parameters, a constructor T(const Setup &, keel_allocator_needs &), and a member
// void allocate(const keel_allocator_input &, int32_t *budgets), see allocator.h. Members of the
// input that an older host does not know are 0 or NULL.
template <typename T>
const keel_allocator &allocator_table() noexcept {
    static const keel_allocator table = [] {
        using Slots = detail::AllocatorSlots<T>;
        auto t = blank<keel_allocator>();
        t.create = Slots::create;
        t.destroy = Slots::destroy;
        t.allocate = Slots::allocate;
        return t;
    }();
    return table;
}

// The descriptors of a policy class and of an allocator class. Static data.
template <typename T>
const keel_plugin *policy_plugin() noexcept {
    static const keel_plugin plugin = detail::describe<T>(KEEL_PLUGIN_POLICY, &policy_table<T>());
    return &plugin;
}

template <typename T>
const keel_plugin *allocator_plugin() noexcept {
    static const keel_plugin plugin =
        detail::describe<T>(KEEL_PLUGIN_ALLOCATOR, &allocator_table<T>());
    return &plugin;
}

} // namespace keel::sdk

// Defines the entry symbol of the plugin. Use one of these macros once in a library, outside of all
// namespaces.
#define KEEL_POLICY_PLUGIN(Class)                                 \
    const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) { \
        return keel::sdk::policy_plugin<Class>();                 \
    }
#define KEEL_ALLOCATOR_PLUGIN(Class)                              \
    const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) { \
        return keel::sdk::allocator_plugin<Class>();              \
    }

#endif
