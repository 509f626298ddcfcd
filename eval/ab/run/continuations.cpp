#include "eval/ab/run/continuations.hpp"

#include "eval/scoring/logits.hpp"

#include <algorithm>

namespace keel::ab {
namespace {

constexpr uint64_t most_logits = uint64_t{1} << 30; // limit for the reference's logits, in bytes

double mean(const std::vector<double> &values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Throws Error(input) if the logits of `tokens` tokens need more than most_logits bytes. `texts` is
// the number of texts that are scored at the same time.
void require_room_for_logits(const std::string &task, size_t tokens, size_t vocab, size_t texts) {
    if (tokens * vocab * sizeof(float) > most_logits)
        throw_error(ErrorKind::input,
                    "task '{}': the logits of {} scored tokens with a vocabulary of {} take more "
                    "than {} MiB; "
                    "lower 'score'{}",
                    task, tokens, vocab, most_logits >> 20, texts > 1 ? " or 'batch'" : "");
}

// The tokens that the model reads: all tokens of the text except the last one. The last token is
// only scored, because the token after the last token is not known.
std::span<const int32_t> feed_of(const Unit &unit) {
    return std::span(unit.continuation).first(unit.continuation.size() - 1);
}

} // namespace

// A text that is being scored.
struct Continuations::Scored {
    Scored(Arms &arms, size_t run, const Member &of, Arms::Opened behind)
        : member(of), opened(std::move(behind)), session(*opened.session), feed(feed_of(of.unit)),
          notes(opened.notes, session), measured(arms, run, session, opened) {}

    const Member &member;
    Arms::Opened opened;
    Session &session;
    std::span<const int32_t> feed;
    size_t at = 0; // number of tokens of `feed` that the model has read
    bool draws = false;
    std::optional<KeepMap> map;
    TimelineNotes notes;
    Measured measured;
    std::vector<double> nll, kld, top1;
};

// True if a later run needs the reference's logits.
bool Continuations::wants_logits(const Place &place, std::span<const Member> members) const {
    return std::any_of(
        context_.experiment.runs.begin(), context_.experiment.runs.end(), [&](const Run &other) {
            return std::any_of(other.seeds.begin(), other.seeds.end(), [&](uint64_t seed) {
                const Place there = {other.arm, other.budget, place.protocol, place.task, seed};
                if (other.is_rerun && !context_.results.reruns(there, members.front().first))
                    return false;
                return std::any_of(members.begin(), members.end(), [&](const Member &member) {
                    return !context_.results.is_finished(there, member.unit.document);
                });
            });
        });
}

void check_room_for_logits(const PlannedTask &task, Arms &arms) {
    const auto vocab = static_cast<size_t>(arms.pipeline(0).model().vocab_size);
    for (size_t first = 0; first < task.documents; first += task.at_once) {
        size_t tokens = 0;
        for (size_t d = first; d < std::min<size_t>(first + task.at_once, task.documents); ++d)
            for (const Unit &unit : task.items->units(d, Protocol::question_blind))
                tokens += feed_of(unit).size();
        require_room_for_logits(task.task->name, tokens, vocab, task.at_once);
    }
}

// If the run is the reference, makes room for the reference's logits. If the run is not the
// reference, checks that the reference's logits have the right shape.
void Continuations::make_room_for_logits(const Place &place, size_t run,
                                         std::span<const Member> members) {
    const auto vocab = static_cast<size_t>(context_.arms.pipeline(run).model().vocab_size);
    size_t tokens = 0;
    for (const Member &member : members) {
        tokens += feed_of(member.unit).size();
        const size_t wanted = feed_of(member.unit).size() * vocab;
        if (run != 0 && (reference_logits_.size() != members.size() ||
                         reference_logits_[member.index].size() != wanted))
            throw_error(ErrorKind::input,
                        "arm '{}': the vocabulary has {} tokens, but the reference's has another "
                        "size; use a model with the reference's vocabulary",
                        place.arm, vocab);
    }
    require_room_for_logits(place.task, tokens, vocab, members.size());
    if (run == 0) reference_logits_.assign(members.size(), {});
}

void Continuations::run(const PlannedTask &task, const Place &place, size_t run,
                        std::span<const Member> members) {
    const bool is_reference = run == 0;
    const bool finished = std::all_of(members.begin(), members.end(), [&](const Member &member) {
        return context_.results.is_finished(place, member.unit.document);
    });
    if (finished && !(is_reference && wants_logits(place, members))) return;
    make_room_for_logits(place, run, members);
    std::vector<std::unique_ptr<Scored>> texts;
    for (const Member &member : members) {
        texts.push_back(std::make_unique<Scored>(context_.arms, run, member,
                                                 context_.open(run, place.seed, member)));
        Scored &text = *texts.back();
        text.draws = context_.draws(place, run, member.document);
        if (text.draws && text.session.cache().evictions() > 0)
            text.map = read_keep_map(text.session, std::ssize(member.unit.prompt));
    }
    std::vector<Session *> sessions;
    std::vector<int32_t> ids;
    std::vector<const std::string *> items;
    for (;;) {
        std::vector<Scored *> taking;
        sessions.clear();
        ids.clear();
        items.clear();
        for (const auto &text : texts) {
            if (text->at == text->feed.size()) continue;
            taking.push_back(text.get());
            sessions.push_back(&text->session);
            ids.push_back(text->feed[text->at]);
            items.push_back(&text->member.unit.document);
        }
        if (taking.empty()) break;
        size_t n = 1;
        if (task.one_by_one) {
            context_.take_in(task, place, run, sessions, ids, items, SessionBatch::Read::logits);
        } else { // scores one text at a time
            Scored &text = *taking.front();
            n = std::min<size_t>(
                text.feed.size() - text.at,
                std::min<size_t>(Arms::logit_rows, text.session.pipeline().graph().max_tokens()));
            at_arm(place, text.member.unit.document, [&] {
                if (!text.session.take_in(text.feed.subspan(text.at, n), static_cast<uint32_t>(n)))
                    throw_error(ErrorKind::runtime, "cancelled");
            });
        }
        for (Scored *text : taking) take_rows(*text, n, is_reference);
    }
    for (const auto &text : texts) {
        if (!context_.results.is_finished(place, text->member.unit.document))
            write_scores(place, *text);
    }
}

// Takes the logits of the last n tokens that the model has read.
void Continuations::take_rows(Scored &s, size_t n, bool is_reference) {
    const auto vocab = static_cast<size_t>(s.session.pipeline().model().vocab_size);
    const std::span<const float> rows = s.session.logits();
    if (rows.size() != n * vocab)
        throw_error(ErrorKind::internal, "expected {} rows of logits, found {} numbers", n,
                    rows.size());
    s.measured.sample();
    if (s.draws) s.notes.add();
    std::vector<float> &reference = reference_logits_[s.member.index];
    for (size_t i = 0; i < n; ++i) {
        const std::span<const float> row = rows.subspan(i * vocab, vocab);
        const int32_t truth = s.member.unit.continuation[s.at + i + 1];
        if (is_reference) {
            s.nll.push_back(-log_probability(row, truth));
            s.kld.push_back(0);
            s.top1.push_back(1);
        } else {
            const RowDifference d =
                compare_rows(row, std::span(reference).subspan((s.at + i) * vocab, vocab), truth);
            s.nll.push_back(-d.log_p);
            s.kld.push_back(d.kl);
            s.top1.push_back(d.same_top ? 1 : 0);
        }
    }
    if (is_reference) reference.insert(reference.end(), rows.begin(), rows.end());
    s.at += n;
}

void Continuations::write_scores(const Place &place, Scored &s) {
    const Unit &unit = s.member.unit;
    if (s.map) {
        static_cast<Place &>(*s.map) = place;
        s.map->item = unit.document;
        context_.results.write(*s.map);
    }
    if (s.draws) {
        context_.results.write(s.notes.timeline(place, unit.document));
        context_.write_prompt(place, unit.document, unit.prompt);
    }
    const std::pair<const char *, const std::vector<double> *> metrics[] = {
        {"nll", &s.nll}, {"kld", &s.kld}, {"top1", &s.top1}};
    for (const auto &[name, values] : metrics) {
        if (name != std::string_view("top1")) {
            Curve curve;
            static_cast<Place &>(curve) = place;
            curve.metric = name;
            curve.item = unit.document;
            curve.values = *values;
            context_.results.write(curve);
        }
    }
    for (const auto &[name, values] : metrics) {
        Item item;
        static_cast<Place &>(item) = place;
        item.metric = name;
        item.document = unit.document;
        item.item = unit.document;
        item.value = mean(*values);
        item.length = std::ssize(unit.prompt);
        s.measured.fill(item);
        context_.results.write_item(item);
    }
}

Continuations::~Continuations() = default;

} // namespace keel::ab
