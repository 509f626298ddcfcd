#include "eval/ab/run/questions.hpp"

#include <fmt/ranges.h>
#include <iterator>

namespace keel::ab {
namespace {

// Reads the tokens of a question. Returns the most likely next token.
int32_t read_question(Session &session, std::span<const int32_t> ids) {
    if (!session.take_in(ids)) throw_error(ErrorKind::runtime, "cancelled");
    return session.greedy();
}

} // namespace

// A question that is being answered.
struct Questions::Asked {
    Asked(Arms &arms, size_t run, const Member &of, const Question &asked,
          const std::shared_ptr<Arms::Opened> &opened, std::unique_ptr<Session> own)
        : member(of), question(asked), original(own ? nullptr : opened), copy(std::move(own)),
          session(copy ? *copy : *opened->session), notes(opened->notes, session),
          measured(arms, run, session, *opened), id(opened->next) {}

    const Member &member;
    const Question &question;
    // The session that was copied for this question. NULL if the copy does not need the original.
    std::shared_ptr<Arms::Opened> original;
    std::unique_ptr<Session> copy;
    Session &session;
    std::optional<KeepMap> map;
    TimelineNotes notes;
    Measured measured;
    bool draws = false;
    int32_t id; // the most likely next token
    std::vector<int32_t> ids;
    std::string text;
};

void Questions::run(const PlannedTask &task, const Place &place, size_t run,
                    std::span<const Member> members) {
    struct Wanted {
        const Member *member;
        const Question *question;
    };
    std::vector<Wanted> wanted;
    bool is_pending = false;
    for (const Member &member : members) {
        for (const Question &question : member.unit.questions) {
            const bool finished = context_.results.is_finished(place, question.item);
            is_pending = is_pending || !finished;
            // In a batch, finished questions are answered again too, because all rows of a batch
            // affect the rounding of each answer.
            if (!finished || task.at_once > 1) wanted.push_back({&member, &question});
        }
    }
    if (!is_pending) return;
    const bool copies = !context_.experiment.runs[run].config.kv.max_bytes();
    std::shared_ptr<Arms::Opened> opened;
    size_t next = 0;
    const auto begin = [&] {
        const Wanted w = wanted[next++];
        const bool more = next < wanted.size() && wanted[next].member == w.member;
        if (!copies) opened.reset();
        if (!opened)
            opened = std::make_shared<Arms::Opened>(context_.open(run, place.seed, *w.member));
        std::unique_ptr<Asked> asked =
            ask(place, run, *w.member, *w.question, opened, copies && more);
        if (!more) opened.reset();
        return asked;
    };
    std::vector<std::unique_ptr<Asked>> seats;
    std::vector<Session *> sessions;
    std::vector<int32_t> ids;
    std::vector<const std::string *> items;
    for (;;) {
        while (seats.size() < task.at_once && next < wanted.size()) {
            seats.push_back(begin());
            if (look_at_answer(task, *seats.back())) continue;
            write_answer(task, place, *seats.back());
            seats.pop_back();
        }
        if (seats.empty()) return;
        sessions.clear();
        ids.clear();
        items.clear();
        for (const auto &seat : seats) {
            sessions.push_back(&seat->session);
            ids.push_back(seat->id);
            items.push_back(&seat->question.item);
        }
        context_.take_in(task, place, run, sessions, ids, items, SessionBatch::Read::greedy);
        for (size_t i = 0; i < seats.size();) {
            seats[i]->id = seats[i]->session.greedy();
            if (look_at_answer(task, *seats[i])) {
                ++i;
                continue;
            }
            write_answer(task, place, *seats[i]);
            seats.erase(seats.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

std::unique_ptr<Questions::Asked> Questions::ask(const Place &place, size_t run,
                                                 const Member &member, const Question &question,
                                                 const std::shared_ptr<Arms::Opened> &opened,
                                                 bool copy) {
    auto asked = std::make_unique<Asked>(context_.arms, run, member, question, opened,
                                         copy ? opened->session->fork() : nullptr);
    asked->draws =
        context_.draws(place, run, member.document) && &question == &member.unit.questions.front();
    if (asked->draws && opened->session->cache().evictions() > 0)
        asked->map = read_keep_map(asked->session, std::ssize(member.unit.prompt));
    if (!question.ask.empty())
        asked->id = at_arm(place, question.item,
                           [&] { return read_question(asked->session, question.ask); });
    return asked;
}

// Adds the last token to the answer. Returns false if this token completes the answer.
bool Questions::look_at_answer(const PlannedTask &task, Asked &a) const {
    a.measured.sample();
    if (a.draws) a.notes.add();
    const Tokenizer &tokenizer = context_.arms.tokenizer();
    if (context_.experiment.form.ends_answer(tokenizer, a.id)) return false;
    a.ids.push_back(a.id);
    a.text = tokenizer.decode(a.ids, DecodeOptions{.skip_special = true, .continues = true});
    if (const auto before = context_.experiment.form.before_end(tokenizer, a.text)) {
        a.text = *before;
        return false;
    }
    return std::ssize(a.ids) < a.question.max_tokens && !task.items->ends(a.text);
}

void Questions::write_answer(const PlannedTask &task, const Place &place, const Asked &a) {
    if (context_.results.is_finished(place, a.question.item)) return;
    if (a.map) {
        KeepMap map = *a.map;
        static_cast<Place &>(map) = place;
        map.item = a.question.item;
        context_.results.write(map);
    }
    Item item;
    static_cast<Place &>(item) = place;
    item.metric = task.last_metric;
    item.document = a.member.unit.document;
    item.item = a.question.item;
    item.answer = task.items->clean(a.text);
    item.expected = fmt::format("{}", fmt::join(a.question.expected, " | "));
    item.value = task.items->score(item.answer, a.question.expected);
    item.length = std::ssize(a.member.unit.prompt) + std::ssize(a.question.ask);
    item.depth = a.question.depth;
    a.measured.fill(item);
    if (a.draws) {
        context_.results.write(a.notes.timeline(place, a.question.item));
        context_.write_prompt(place, a.question.item, a.member.unit.prompt);
    }
    context_.results.write_item(item);
}

Questions::~Questions() = default;

} // namespace keel::ab
