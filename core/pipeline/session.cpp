#include "pipeline/session.hpp"

#include "base/display.hpp"
#include "device/trace.hpp"
#include "model/tensor_check.hpp"

#include <chrono>
#include <cmath>
#include <numeric>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Stream::Counters &operator+=(Stream::Counters &a, const Stream::Counters &b) {
    a.ops += b.ops;
    a.submits += b.submits;
    a.waits += b.waits;
    a.reads += b.reads;
    a.writes += b.writes;
    a.read_bytes += b.read_bytes;
    a.written_bytes += b.written_bytes;
    return a;
}

Stream::Counters operator-(Stream::Counters a, const Stream::Counters &b) {
    a.ops -= b.ops;
    a.submits -= b.submits;
    a.waits -= b.waits;
    a.reads -= b.reads;
    a.writes -= b.writes;
    a.read_bytes -= b.read_bytes;
    a.written_bytes -= b.written_bytes;
    return a;
}

} // namespace

// Adds the time and the stream's work between construction and destruction to the stats of a kind of step.
class Session::Meter {
  public:
    Meter(Session &session, bool decode)
        : session_(session), decode_(decode), start_(Clock::now()),
          before_(session.pipeline_.executor().stream().counters()) {}
    ~Meter() {
        const Stream::Counters used = session_.pipeline_.executor().stream().counters() - before_;
        session_.stats_.stream += used;
        (decode_ ? session_.stats_.decode_seconds : session_.stats_.prefill_seconds) += seconds_since(start_);
        if (decode_) session_.stats_.decode_stream += used;
    }
    Meter(const Meter &) = delete;
    Meter &operator=(const Meter &) = delete;

  private:
    Session &session_;
    bool decode_;
    Clock::time_point start_;
    Stream::Counters before_;
};

bool Session::can_take(int64_t n, std::string *why) const {
    return cache_->can_take(n, false, why);
}

bool Session::prefill(std::span<const int32_t> ids, bool is_prompt_end, uint32_t rows,
                      const Progress &progress) {
    if (ids.empty()) return true;
    settle();
    std::string why;
    if (!cache_->can_take(static_cast<int64_t>(ids.size()), true, &why))
        throw_error(ErrorKind::resource, "{}", why);
    const auto total = static_cast<int64_t>(ids.size());
    const std::optional<int32_t> pending = pending_;
    const uint64_t evictions = cache_->evictions();
    for (int64_t done = 0; done < total;) {
        if (pipeline_.host().cancelled()) {
            if (done > 0) take_back(done, pending, evictions);
            return false;
        }
        const int64_t n =
            std::min<int64_t>(cache_->next_chunk(total - done, pipeline_.graph().max_tokens()), total - done);
        const bool last = done + n == total;
        {
            const Meter meter(*this, false);
            step(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                 last && is_prompt_end ? StepKind::prefill_end : StepKind::prefill_chunk,
                 last ? std::min<uint32_t>(rows, static_cast<uint32_t>(n)) : 0);
            if (last) {
                if (rows > 0) read_logits(); // the wait belongs to the prefill
            } else {
                settle(); // submitted, not waited for: the next chunk is queued behind it
            }
        }
        done += n;
        stats_.prefill_tokens += static_cast<uint64_t>(n);
        if (progress) progress("prefill", static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    }
    return true;
}

// Of a prefill that was cancelled: as if it had not begun, unless it evicted what cannot come back, or went into a policy's sums.
void Session::take_back(int64_t tokens, std::optional<int32_t> pending, uint64_t evictions) {
    settle();
    if (cache_->evictions() != evictions || !cache_->can_truncate(tokens)) return;
    truncate(tokens);
    pending_ = pending;
}

void Session::decode(int32_t id) {
    const Meter meter(*this, true);
    settle();
    step({&id, 1}, StepKind::decode, 1);
    ++stats_.decode_tokens;
}

void Session::step(std::span<const int32_t> ids, StepKind kind, uint32_t rows) {
    const auto n = static_cast<int64_t>(ids.size());
    const TraceSpan span(pipeline_.executor().stream().trace(),
                         kind == StepKind::decode ? "decode" : "prefill", "step");
    cache_->before_append(n, kind);
    const std::span<const int32_t> positions = cache_->next_positions(n);
    step_ids_.assign(ids.begin(), ids.end());
    step_positions_.assign(positions.begin(), positions.end());
    cache_->append(n);
    StepTap *tap = cache_->begin_step(n, kind);
    step_kind_ = kind;
    rows_ = rows;
    logits_read_ = false;
    settled_ = false;
    pending_.reset();
    history_.insert(history_.end(), ids.begin(), ids.end());
    StepTaps taps;
    if (tap != nullptr) taps = {&pipeline_.taps(cache_->plan()), tap};
    pipeline_.graph().forward(step_ids_, step_positions_, cache_->cache().views(), rows, taps);
}

void Session::end_prompt() {
    const Meter meter(*this, false);
    settle();
    cache_->after_step(StepKind::prefill_end);
}

void Session::settle() {
    if (settled_) return;
    settled_ = true;
    cache_->after_step(step_kind_);
    pipeline_.executor().stream().end_of_step();
}

void Session::read_logits() {
    logits_.resize(static_cast<size_t>(rows_) * static_cast<size_t>(pipeline_.model().vocab_size));
    if (rows_ > 0) pipeline_.graph().read_logits(rows_, logits_.data());
    check_finite(logits_);
    logits_read_ = true;
    settle();
}

std::span<const float> Session::logits() {
    if (!logits_read_) {
        const Meter meter(*this, step_kind_ == StepKind::decode);
        read_logits();
    }
    return logits_;
}

int32_t Session::greedy() {
    if (logits_read_ && logits_.empty())
        throw_error(ErrorKind::internal, "no step was taken that has logits");
    if (logits_read_) { // of the prefill: they are here already
        const std::span<const float> row = logits().last(static_cast<size_t>(pipeline_.model().vocab_size));
        return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    const Meter meter(*this, step_kind_ == StepKind::decode);
    pipeline_.graph().queue_argmax();
    int32_t id = -1;
    pipeline_.graph().next_id().read(&id);
    if (id < 0) find_non_finite(); // no token: a logit was not finite
    settle();
    return id;
}

void Session::check_finite(std::span<const float> values) {
    // Adding up is quicker than asking each: an infinity or a NaN survives the sum of magnitudes times zero.
    float sum = 0;
    for (const float v : values)
        sum += v * 0.0F;
    if (sum != 0 || std::isnan(sum)) find_non_finite();
}

// One step with a look at the residual stream after each layer; the position counts from the step's first token.
std::optional<Session::NonFinite> Session::probe_step(std::span<const int32_t> ids,
                                                      std::span<const int32_t> positions, KvCache &cache,
                                                      uint32_t rows) {
    Graph &graph = pipeline_.graph();
    std::vector<float> host;
    graph.set_probe([&](int64_t layer, const Tensor &x) {
        host.resize(x.bytes() / sizeof(float));
        x.read(host.data());
        for (size_t i = 0; i < host.size(); ++i) {
            if (!std::isfinite(host[i])) throw NonFinite{layer, static_cast<int64_t>(i) / x.dim(1)};
        }
    });
    try {
        graph.forward(ids, positions, cache.views(), rows);
        graph.set_probe({});
    } catch (const NonFinite &found) {
        graph.set_probe({});
        return found;
    } catch (...) {
        graph.set_probe({});
        throw;
    }
    return std::nullopt;
}

// Everything taken in so far, on a cache of its own. Only as long as nothing was evicted: a token's position is its number then.
std::optional<Session::NonFinite> Session::replay_history() {
    KvCache cache(pipeline_.executor(), pipeline_.kv_shape(), pipeline_.placement());
    std::vector<int32_t> positions;
    for (size_t done = 0; done < history_.size();) {
        const size_t n = std::min<size_t>(history_.size() - done, pipeline_.graph().max_tokens());
        positions.resize(n);
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(done));
        cache.append(positions, static_cast<int64_t>(n));
        auto found = probe_step(std::span(history_).subspan(done, n), positions, cache, 0);
        if (found) {
            found->position += static_cast<int64_t>(done);
            return found;
        }
        done += n;
    }
    return std::nullopt;
}

// What to look at, once layer `layer` (-1: the embedding; as many as there are layers: what follows them) gave a bad number: the tensor of
// it that holds one itself, as its file calls it; else all that could be.
std::string Session::suspects(int64_t layer) const {
    const ModelSource &source = pipeline_.source();
    const bool between = layer >= 0 && layer < pipeline_.model().layers;
    const std::string own = between ? fmt::format("model.layers.{}.", layer) : std::string{};
    for (const TensorInfo &tensor : source.tensors()) {
        const bool is_of_layer =
            between ? tensor.name.starts_with(own) : !tensor.name.starts_with("model.layers.");
        if (!is_of_layer) continue;
        const TensorCheck check = check_tensor(source, tensor);
        if (!check.first_not_finite) continue;
        return fmt::format("{}: tensor '{}' has {} of {} values that are not finite; get the file anew",
                           printable(source.file(tensor).path(), 400),
                           printable(tensor.stored_name.empty() ? tensor.name : tensor.stored_name),
                           check.not_finite, check.elements);
    }
    const std::string path = printable(source.path(), 400);
    const std::string weights =
        fmt::format("are the weights of {0} sound? `keel inspect {0} --verify` reads them all", path);
    if (loaded_from_.empty()) return weights;
    return fmt::format("is the session sound that was loaded from {}? Or {}", loaded_from_, weights);
}

// Where the first number that is not finite arises, by computing again and looking at the residual stream after each layer. A bad
// token of an earlier step reaches later ones through the cache, so all is computed again, if all is still there to compute with.
void Session::find_non_finite() {
    const bool one_step = history_.size() == step_ids_.size();
    std::optional<NonFinite> found;
    bool traced = one_step;
    if (!one_step && cache_->evictions() == 0) {
        try {
            found = replay_history();
            traced = true;
        } catch (const Error &) {
            // No memory for a second cache: the last step has to do.
        }
    }
    if (one_step || !traced) { // its cache slots are written again with the same values
        found = probe_step(step_ids_, step_positions_, cache_->cache(), rows_);
        if (found) found->position += tokens() - static_cast<int64_t>(step_ids_.size());
    }
    const char *at = traced ? "at" : "at or before";
    if (found) {
        throw_error(ErrorKind::runtime, "{} {} position {} (token {}): a value that is not finite; {}",
                    found->layer < 0 ? std::string("embedding") : fmt::format("layer {}", found->layer), at,
                    found->position, history_[static_cast<size_t>(found->position)], suspects(found->layer));
    }
    throw_error(ErrorKind::runtime, "output projection {} position {}: a logit that is not finite; {}", at,
                tokens() - 1, suspects(pipeline_.model().layers));
}

const SessionStats &Session::stats() {
    stats_.evictions = cache_->evictions();
    stats_.evicted_tokens = cache_->evicted_slots();
    stats_.evicted_bytes = cache_->evicted_bytes();
    stats_.kv_bytes = cache_->bytes_in_use();
    stats_.kv_peak_bytes = cache_->cache().arena().peak_bytes();
    return stats_;
}

void Session::reset() {
    cache_->reset();
    forget_step();
    history_.clear();
    pending_.reset();
    loaded_from_.clear();
    stats_ = {};
}

// There is no step any more whose results could be read.
void Session::forget_step() {
    step_ids_.clear();
    step_positions_.clear();
    logits_.clear();
    settled_ = true;
    logits_read_ = true;
    rows_ = 0;
}

void Session::truncate(int64_t n) {
    settle();
    cache_->truncate(n);
    history_.resize(history_.size() - static_cast<size_t>(n));
    pending_.reset();
    forget_step();
}

void Session::save_state(StateWriter &out) {
    settle();
    out.put(static_cast<uint64_t>(history_.size()));
    out.put_all<int32_t>(history_);
    out.put(pending_.value_or(-1));
    cache_->save(out);
}

void Session::load_state(StateReader &in) {
    reset();
    try {
        const auto vocabulary = static_cast<int32_t>(pipeline_.model().vocab_size);
        const auto tokens = in.get<uint64_t>("the tokens so far");
        in.get_all<int32_t>(history_, tokens, "the tokens so far");
        for (const int32_t id : history_) {
            if (id < 0 || id >= vocabulary)
                in.fail("token {}: the model's vocabulary ends at {}", id, vocabulary - 1);
        }
        const auto pending = in.get<int32_t>("the token to go on with");
        if (pending >= vocabulary)
            in.fail("token {}: the model's vocabulary ends at {}", pending, vocabulary - 1);
        cache_->load(in);
        if (cache_->tokens_seen() != this->tokens())
            in.fail("the cache saw {} tokens, the text has {}", cache_->tokens_seen(), this->tokens());
        if (pending >= 0) pending_ = pending;
        loaded_from_ = in.name();
    } catch (...) {
        reset();
        throw;
    }
}

} // namespace keel
