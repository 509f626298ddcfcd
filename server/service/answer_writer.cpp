#include "server/service/answer_writer.hpp"

namespace keel::server {

const char *finish_reason(api::Stop stop) {
    return stop == api::Stop::end_token || stop == api::Stop::stop_string ? "stop" : "length";
}

void write_head(JsonWriter &out, const AnswerHead &head, const char *object) {
    out.member("id", head.id)
        .member("object", object)
        .member("created", head.created)
        .member("model", head.model)
        .member("system_fingerprint", head.fingerprint);
}

} // namespace keel::server
