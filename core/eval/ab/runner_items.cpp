#include "eval/ab/runner_parts.hpp"

#include "base/error.hpp"
#include "eval/logits.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr uint64_t most_logits = uint64_t{1} << 30; // bytes of a document's reference logits

std::vector<std::array<uint64_t, 3>> points_of(const std::vector<AbArms::Note> &notes) {
    std::vector<std::array<uint64_t, 3>> points;
    for (const AbArms::Note &note : notes)
        points.push_back({note.tokens, note.kv_bytes, note.evicted_slots});
    return points;
}

// Notes a session's cache after each step.
class TimelineNotes {
  public:
    TimelineNotes(std::vector<AbArms::Note> notes, Session &session)
        : notes_(std::move(notes)), session_(session), evicted_(session.cache().evicted_slots()) {}
    void add() {
        const uint64_t gone = session_.cache().evicted_slots();
        notes_.push_back(
            {static_cast<uint64_t>(session_.tokens()), ab_held_bytes(session_), gone - evicted_});
        evicted_ = gone;
    }
    const std::vector<AbArms::Note> &notes() const { return notes_; }

  private:
    std::vector<AbArms::Note> notes_;
    Session &session_;
    uint64_t evicted_;
};

// The most likely token behind it.
int32_t read_question(Session &session, std::span<const int32_t> ids) {
    if (!session.prefill(ids, false)) throw_error(ErrorKind::runtime, "cancelled");
    return session.greedy();
}

// Behind a prompt an arm is told by its name, too, where it runs out of memory.
template <typename Action>
auto at_arm(const AbPlace &place, const std::string &item, Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        if (e.kind() != ErrorKind::resource) throw;
        throw Error(e.kind(), fmt::format("task '{}': arm '{}' at {}, item {}: {}", place.task, place.arm,
                                          place.budget, item, e.what()));
    }
}

double mean(const std::vector<double> &values) {
    double sum = 0;
    for (const double v : values)
        sum += v;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

} // namespace

std::optional<AbKeepMap> ab_keep_map(Session &session, int64_t prompt_tokens) {
    const CachePlan &plan = session.cache().plan();
    if (plan.may_move_keys() || prompt_tokens < 1) return std::nullopt;
    const KvCache &cache = session.cache().cache();
    AbKeepMap map;
    map.layers = cache.shape().layers;
    map.kv_heads = cache.shape().kv_heads;
    constexpr int64_t n = AbKeepMap::bin_count;
    for (uint32_t l = 0; l < map.layers; ++l) {
        for (uint32_t h = 0; h < map.kv_heads; ++h) {
            std::array<double, n> kept{};
            for (const int32_t position : cache.positions(l, h)) {
                if (position < prompt_tokens) kept[static_cast<size_t>(position * n / prompt_tokens)] += 1;
            }
            for (int64_t b = 0; b < n; ++b) {
                // Positions p with p * n / tokens == b.
                const int64_t begin = (b * prompt_tokens + n - 1) / n,
                              end = ((b + 1) * prompt_tokens + n - 1) / n;
                map.bins.push_back(end > begin ? static_cast<float>(kept[static_cast<size_t>(b)] /
                                                                    static_cast<double>(end - begin))
                                               : 0.0F);
            }
        }
    }
    return map;
}

void AbRunner::ask_questions(const Task &task, const AbPlace &place, size_t run, size_t document,
                             const AbUnit &unit, bool with_maps) {
    const Tokenizer &tokenizer = arms_->tokenizer();
    std::vector<size_t> pending;
    for (size_t q = 0; q < unit.questions.size(); ++q) {
        if (!is_finished(place, unit.questions[q].item)) pending.push_back(q);
    }
    if (pending.empty()) return;
    // Each question finds the cache as the prompt left it: in a copy of it, or, under a cap on its bytes, which copies would take from each
    // other, in one that read the prompt again.
    const bool copies = !experiment_.runs[run].config.kv.max_bytes();
    AbArms::Opened opened;
    for (const size_t q : pending) {
        const AbQuestion &question = unit.questions[q];
        if (!copies) opened = {};
        if (!opened.session) opened = arms_->open(run, place.seed, document, unit.prompt);
        const std::unique_ptr<Session> copy =
            !copies || q == pending.back() ? nullptr : opened.session->fork();
        Session &s = copy ? *copy : *opened.session;
        TimelineNotes notes(opened.notes, s);
        const bool draws = with_maps && q == 0;
        if (draws && opened.session->cache().evictions() > 0) {
            if (std::optional<AbKeepMap> map = ab_keep_map(s, std::ssize(unit.prompt))) {
                static_cast<AbPlace &>(*map) = place;
                map->item = question.item;
                writer_->write(*map);
            }
        }
        Measured measured(*arms_, run, s, opened);
        int32_t id = question.ask.empty()
                         ? opened.next
                         : at_arm(place, question.item, [&] { return read_question(s, question.ask); });
        std::vector<int32_t> ids;
        std::string text;
        for (;;) {
            measured.sample();
            if (draws) notes.add();
            if (tokenizer.ends_generation(id)) break;
            ids.push_back(id);
            text = tokenizer.decode(ids, DecodeOptions{.skip_special = true, .continues = true});
            if (std::ssize(ids) >= question.max_tokens || task.items->ends(text)) break;
            at_arm(place, question.item, [&] { s.decode(id); });
            id = s.greedy();
        }
        AbItem item;
        static_cast<AbPlace &>(item) = place;
        item.metric = task.last_metric;
        item.document = unit.document;
        item.item = question.item;
        item.answer = task.items->clean(text);
        item.expected = fmt::format("{}", fmt::join(question.expected, " | "));
        item.value = task.items->score(item.answer, question.expected);
        item.length = std::ssize(unit.prompt) + std::ssize(question.ask);
        item.depth = question.depth;
        measured.fill(item);
        if (draws) {
            AbTimeline line;
            static_cast<AbPlace &>(line) = place;
            line.item = question.item;
            line.points = points_of(notes.notes());
            writer_->write(line);
        }
        write_item(item);
    }
}

void AbRunner::score_continuation(const Task &task, const AbPlace &place, size_t run, size_t document,
                                  const AbUnit &unit, bool with_maps) {
    const bool is_reference = run == 0;
    const bool finished = is_finished(place, unit.document);
    if (finished && !is_reference) return;
    if (finished) {
        // Its logits are wanted as long as another run is still to come.
        const bool wanted =
            std::any_of(experiment_.runs.begin(), experiment_.runs.end(), [&](const AbRun &other) {
                return std::any_of(other.seeds.begin(), other.seeds.end(), [&](uint64_t seed) {
                    return !is_finished({other.arm, other.budget, place.protocol, place.task, seed},
                                        unit.document);
                });
            });
        if (!wanted) return;
    }
    AbArms::Opened opened = arms_->open(run, place.seed, document, unit.prompt);
    Session &s = *opened.session;
    const std::span<const int32_t> feed = std::span(unit.continuation).first(unit.continuation.size() - 1);
    const auto vocab = static_cast<size_t>(s.pipeline().model().vocab_size);
    if (feed.size() * vocab * sizeof(float) > most_logits)
        throw_error(ErrorKind::input,
                    "task '{}': {} scored tokens of a vocabulary of {} take more than {} MiB of logits; "
                    "lower 'score'",
                    place.task, feed.size(), vocab, most_logits >> 20);
    if (is_reference) reference_logits_.clear();
    const bool has_reference = !is_reference && reference_logits_.size() == feed.size() * vocab;
    if (!is_reference && !has_reference)
        throw_error(ErrorKind::input, "arm '{}': its model has {} tokens, the reference's another number",
                    place.arm, vocab);

    TimelineNotes notes(opened.notes, s);
    std::optional<AbKeepMap> map;
    if (with_maps && s.cache().evictions() > 0) map = ab_keep_map(s, std::ssize(unit.prompt));
    Measured measured(*arms_, run, s, opened);
    std::vector<double> nll, kld, top1;
    for (size_t at = 0; at < feed.size();) {
        size_t n = 1;
        if (task.one_by_one) {
            at_arm(place, unit.document, [&] { s.decode(feed[at]); });
        } else {
            n = std::min<size_t>(feed.size() - at,
                                 std::min<size_t>(AbArms::logit_rows, s.pipeline().graph().max_tokens()));
            at_arm(place, unit.document, [&] {
                if (!s.prefill(feed.subspan(at, n), false, static_cast<uint32_t>(n)))
                    throw_error(ErrorKind::runtime, "cancelled");
            });
        }
        const std::span<const float> rows = s.logits();
        if (rows.size() != n * vocab)
            throw_error(ErrorKind::internal, "expected {} rows of logits, found {} numbers", n, rows.size());
        measured.sample();
        if (with_maps) notes.add();
        for (size_t i = 0; i < n; ++i) {
            const std::span<const float> row = rows.subspan(i * vocab, vocab);
            const int32_t truth = unit.continuation[at + i + 1];
            if (is_reference) {
                nll.push_back(-log_probability(row, truth));
                kld.push_back(0);
                top1.push_back(1);
            } else {
                const RowDifference d =
                    compare_rows(row, std::span(reference_logits_).subspan((at + i) * vocab, vocab), truth);
                nll.push_back(-d.log_p);
                kld.push_back(d.kl);
                top1.push_back(d.same_top ? 1 : 0);
            }
        }
        if (is_reference) reference_logits_.insert(reference_logits_.end(), rows.begin(), rows.end());
        at += n;
    }
    if (finished) return;
    if (map) {
        static_cast<AbPlace &>(*map) = place;
        map->item = unit.document;
        writer_->write(*map);
    }
    if (with_maps) {
        AbTimeline line;
        static_cast<AbPlace &>(line) = place;
        line.item = unit.document;
        line.points = points_of(notes.notes());
        writer_->write(line);
    }
    const std::pair<const char *, const std::vector<double> *> metrics[] = {
        {"nll", &nll}, {"kld", &kld}, {"top1", &top1}};
    for (const auto &[name, values] : metrics) {
        if (name != std::string_view("top1")) {
            AbCurve curve;
            static_cast<AbPlace &>(curve) = place;
            curve.metric = name;
            curve.item = unit.document;
            curve.values = *values;
            writer_->write(curve);
        }
    }
    for (const auto &[name, values] : metrics) {
        AbItem item;
        static_cast<AbPlace &>(item) = place;
        item.metric = name;
        item.document = unit.document;
        item.item = unit.document;
        item.value = mean(*values);
        item.length = std::ssize(unit.prompt);
        measured.fill(item);
        write_item(item);
    }
}

} // namespace keel
