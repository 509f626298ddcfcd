#include "eval/ab/run/run_progress.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel::ab {

void check_cancelled(const RunOptions &options) {
    if (options.host->cancelled()) throw_error(ErrorKind::runtime, "cancelled");
}

void RunProgress::expect(uint64_t total, uint64_t per_document) {
    reports_ = true;
    total_ = total;
    per_document_ = per_document;
}

void RunProgress::begin(size_t documents) {
    before_ = done_;
    documents_ = documents;
    begin_part(0, 1);
}

void RunProgress::begin_part(size_t part, size_t parts) {
    part_ = part;
    parts_ = parts;
}

void RunProgress::step(uint64_t runs) const {
    check_cancelled(options_);
    if (!options_.steps || !reports_) return;
    const uint64_t here = documents_ * (part_ * per_document_ + runs) / parts_,
                   done = std::min(before_ + here, total_);
    options_.steps(done, total_, std::min(done, static_cast<uint64_t>(found_)));
}

void RunProgress::found() {
    found_ += static_cast<double>(documents_) / static_cast<double>(parts_);
}

void RunProgress::end() { done_ = before_ + documents_ * per_document_; }

} // namespace keel::ab
