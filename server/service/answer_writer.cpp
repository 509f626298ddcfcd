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

std::string usage_text(const AnswerHead &head, const char *object, const UsageSum &usage) {
    JsonWriter out;
    out.begin_object();
    write_head(out, head, object);
    out.key("choices").begin_array().end_array().key("usage");
    write_usage(out, usage);
    out.end_object();
    return out.take();
}

} // namespace keel::server
