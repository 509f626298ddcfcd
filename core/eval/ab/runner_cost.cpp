// What an experiment will cost.
#include "eval/ab/runner_parts.hpp"

#include <algorithm>
#include <system_error>

namespace keel {
// Tokens per second of a batch of the reference's sequences behind a prompt.
double AbRunner::batch_rate(std::span<const int32_t> prompt, int64_t steps) {
    SessionBatch &batch = *arms_->batch(0);
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session *> sessions;
    for (uint32_t i = 0; i < experiment_.config.batch; ++i) {
        owned.push_back(batch.make_session());
        owned.back()->prefill(prompt);
        sessions.push_back(owned.back().get());
    }
    const std::vector<int32_t> ids(sessions.size(), 1);
    batch.decode(sessions, ids, SessionBatch::Read::greedy); // warms up
    const SessionBatch::Stats before = batch.stats();
    for (int64_t i = 1; i < steps; ++i)
        batch.decode(sessions, ids, SessionBatch::Read::greedy);
    const double seconds = batch.stats().seconds - before.seconds;
    return seconds > 0 ? static_cast<double>(batch.stats().tokens - before.tokens) / seconds : 0;
}

AbCost AbRunner::cost() {
    constexpr size_t sampled = 8;
    AbCost cost;
    fill_header();
    if (std::error_code error;
        options_.resume && std::filesystem::exists(results(), error)) // what a run would refuse
        require_same_experiment(results(), read_ab_header(results()), options_.header);
    check_items();
    const uint64_t prefills = arms_->prefills();
    uint64_t per_document = 0, capped = 0;
    for (const AbRun &run : experiment_.runs) {
        per_document += run.is_rerun ? 0 : run.seeds.size();
        capped += run.is_rerun || !run.config.kv.max_bytes() ? 0 : run.seeds.size();
    }
    for (const Task &task : tasks_) {
        const bool asks = task.items && task.items->has_question();
        const std::vector<AbProtocol> one = {AbProtocol::question_blind};
        for (const AbProtocol protocol : asks ? experiment_.config.protocols : one) {
            AbCost::Row row;
            row.task = task.task->name;
            row.protocol = asks ? ab_protocol_name(protocol) : "";
            row.documents = task.documents;
            row.runs = per_document;
            if (!task.items) {
                for (size_t d = 0; d < task.documents; ++d) {
                    row.prefill_tokens +=
                        static_cast<uint64_t>(task.task->at[d % task.task->at.size()]) * (per_document + 1);
                    row.decode_tokens += static_cast<uint64_t>(task.task->decode) * (per_document + 1);
                }
            } else {
                const size_t n = std::min(task.documents, sampled);
                cost.counted_by_sample = cost.counted_by_sample || n < task.documents;
                const double scale =
                    static_cast<double>(task.documents) / static_cast<double>(std::max<size_t>(n, 1));
                double prefill = 0, decode = 0, questions = 0;
                for (size_t d = 0; d < n; ++d) {
                    const bool again = d < ab_first_reruns;
                    const double runs = static_cast<double>(per_document + (again ? 1 : 0));
                    for (const AbUnit &unit : task.items->units(d, protocol)) {
                        // Under a cap on the cache's bytes each further question reads the prompt again.
                        const uint64_t further = unit.questions.size() > 1 ? unit.questions.size() - 1 : 0;
                        prefill += static_cast<double>(unit.prompt.size()) *
                                   static_cast<double>(prefills + capped * further + (again ? 1 : 0));
                        decode += static_cast<double>(unit.continuation.size()) * runs;
                        for (const AbQuestion &q : unit.questions)
                            decode += static_cast<double>(std::ssize(q.ask) + q.max_tokens) * runs;
                        questions += static_cast<double>(unit.questions.size());
                    }
                }
                row.prefill_tokens = static_cast<uint64_t>(prefill * scale);
                row.decode_tokens = static_cast<uint64_t>(decode * scale);
                row.questions = static_cast<uint64_t>(questions * scale);
            }
            cost.prefill_tokens += row.prefill_tokens;
            cost.decode_tokens += row.decode_tokens;
            cost.rows.push_back(row);
        }
    }
    Pipeline &p = arms_->pipeline(0);
    const int64_t tokens = std::min<int64_t>(256, std::max<int64_t>(1, p.context() / 2));
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 1);
    const int64_t steps = std::min<int64_t>(16, p.context() - tokens);
    cost.batch = experiment_.config.batch;
    for (int round = 0; round < 2; ++round) { // the first warms up
        Session session(p);
        session.prefill(ids);
        for (int64_t i = 0; i < steps; ++i) {
            session.decode(1);
            session.greedy();
        }
        cost.prefill_rate = session.stats().prefill_rate();
        cost.decode_rate = session.stats().decode_rate();
    }
    if (cost.batch > 1) cost.batch_rate = batch_rate(ids, steps);
    if (cost.prefill_rate > 0) cost.seconds += static_cast<double>(cost.prefill_tokens) / cost.prefill_rate;
    for (size_t t = 0, row = 0; t < tasks_.size(); ++t) {
        const double rate = tasks_[t].at_once > 1 ? cost.batch_rate : cost.decode_rate;
        for (; row < cost.rows.size() && cost.rows[row].task == tasks_[t].task->name; ++row)
            cost.seconds += rate > 0 ? static_cast<double>(cost.rows[row].decode_tokens) / rate : 0;
    }
    cost.seconds /= options_.shard.count;
    return cost;
}

} // namespace keel
