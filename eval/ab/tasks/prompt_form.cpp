#include "eval/ab/tasks/prompt_form.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>

namespace keel::ab {
namespace {

// The date for chat templates that print one. The date is fixed, so that results do not depend on
// the day of the run.
constexpr std::string_view fixed_day = "26 Jul 2024";

constexpr std::string_view blanks = " \t\r\n";

std::string without_blanks_before(std::string_view text) {
    return std::string(text.substr(std::min(text.find_first_not_of(blanks), text.size())));
}

std::string without_blanks_behind(std::string_view text) {
    return std::string(text.substr(0, text.find_last_not_of(blanks) + 1));
}

void append(std::vector<ChatPiece> &to, std::vector<ChatPiece> more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

bool begins_with(const std::vector<int32_t> &ids, const std::vector<int32_t> &front) {
    return ids.size() >= front.size() && std::equal(front.begin(), front.end(), ids.begin());
}

} // namespace

namespace {

// Opens the model's own template. If the experiment wants no system prompt, the template must write
// none of its own.
ChatTemplate open_template(const FoundChatTemplate &found, const Chat &chat,
                           const std::filesystem::path &model) {
    const std::vector<std::string> names = ChatTemplate::names();
    try {
        ChatTemplate opened = found.open();
        if (!chat.system || *chat.system != Chat::no_system) return opened;
        const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model);
        std::string text;
        for (const ChatPiece &piece : opened.system_part(*tokenizer, std::nullopt))
            text += piece.text;
        const auto bos = tokenizer->bos_id();
        if (text.empty() || (bos && text == tokenizer->piece(*bos))) return opened;
        throw_error(ErrorKind::input,
                    "'chat.system: none' has no effect, because the model's chat template writes a "
                    "system prompt of its own: '{}'",
                    printable(text, 200));
    } catch (const Error &error) {
        throw_at(chat.where, ErrorKind::input,
                 "{}; set 'chat: {{template: NAME}}' with the nearest of {}, or 'chat: none'",
                 error.what(), fmt::join(names, ", "));
    }
}

} // namespace

PromptForm PromptForm::choose(const Chat &chat, const std::filesystem::path &model) {
    if (chat.template_name == Chat::no_template) return {};
    const std::vector<std::string> names = ChatTemplate::names();
    std::optional<ChatTemplate> found;
    if (chat.template_name == Chat::models_template) {
        FoundChatTemplate of_model = load_chat_template(model);
        if (!of_model.has_template()) {
            if (chat.system)
                throw_at(chat.where, ErrorKind::input,
                         "'chat.system' has no effect: {} names no chat template; remove "
                         "'chat.system', or "
                         "choose a template: {}",
                         printable(model.string(), 300), fmt::join(names, ", "));
            return {};
        }
        found = open_template(of_model, chat, model);
    } else {
        found = ChatTemplate::by_name(chat.template_name);
        if (!found)
            throw_at(
                chat.where, ErrorKind::input,
                "chat.template: unknown chat template '{}'{}; expected auto, none or one of {}",
                printable(chat.template_name, 60), did_you_mean(chat.template_name, names),
                fmt::join(names, ", "));
    }
    if (!chat.system || *chat.system != Chat::no_system) return {*std::move(found), chat.system};
    if (found->jinja() != nullptr) return {*std::move(found), std::nullopt};
    ChatTemplate::Format format = found->format();
    format.default_system.reset();
    return {ChatTemplate(found->name(), std::move(format)), std::nullopt};
}

std::string PromptForm::description() const {
    if (!chat_) return "plain text";
    std::string system = "no system prompt";
    if (system_) {
        system = fmt::format("the system prompt '{}'", printable(*system_, 200));
    } else if (chat_->jinja() != nullptr) {
        system = "no system prompt but the template's own, if it has one";
    } else if (chat_->format().default_system) {
        system = fmt::format("the template's own system prompt '{}'",
                             printable(*chat_->format().default_system, 200));
    }
    return fmt::format("chat template {}, {}", chat_->name(), system);
}

PromptForm::Pieces PromptForm::pieces(const Tokenizer &tokenizer, const PromptText &text) const {
    const auto plain = [](std::string words) {
        std::vector<ChatPiece> pieces;
        if (!words.empty()) pieces.push_back({std::move(words), false});
        return pieces;
    };
    if (!chat_) return {plain(text.context), plain(text.question), plain(text.opening)};
    Pieces out;
    ChatTemplate::Frame frame = chat_->frame(tokenizer, system_, fixed_day);
    out.context = std::move(frame.before);
    append(out.context, plain(frame.trims ? without_blanks_before(text.context) : text.context));
    out.question = plain(frame.trims ? without_blanks_behind(text.question) : text.question);
    out.opening = std::move(frame.after);
    // A space at the end would become a token of its own. Models are not trained to read a separate
    // space token before a word.
    const std::string opening = without_blanks_behind(without_blanks_before(text.opening));
    if (opening.empty()) return out;
    append(out.opening, chat_->jinja() != nullptr ? plain(opening) : chat_->answer(opening));
    return out;
}

std::vector<int32_t> PromptForm::encode(const Tokenizer &tokenizer,
                                        const std::vector<ChatPiece> &pieces,
                                        bool continues) const {
    if (chat_) return chat_->encode(tokenizer, pieces, continues);
    std::vector<TextPart> parts;
    for (const ChatPiece &piece : pieces) parts.push_back({piece.text, false});
    std::vector<int32_t> ids =
        tokenizer.encode(parts, EncodeOptions{.add_special = false, .continues = continues});
    if (!continues && tokenizer.adds_bos()) ids.insert(ids.begin(), *tokenizer.bos_id());
    return ids;
}

PromptTokens PromptForm::tokens(const Tokenizer &tokenizer, const PromptText &text) const {
    const Pieces parts = pieces(tokenizer, text);
    std::vector<ChatPiece> asked = parts.context;
    append(asked, parts.question);
    std::vector<ChatPiece> all = asked;
    append(all, parts.opening);
    PromptTokens out;
    out.context = encode(tokenizer, parts.context, false);
    const std::vector<int32_t> with_question = encode(tokenizer, asked, false),
                               whole = encode(tokenizer, all, false);
    if (begins_with(with_question, out.context) && begins_with(whole, with_question)) {
        out.question.assign(with_question.begin() + std::ssize(out.context), with_question.end());
        out.opening.assign(whole.begin() + std::ssize(with_question), whole.end());
    } else {
        out.question = encode(tokenizer, parts.question, true);
        out.opening = encode(tokenizer, parts.opening, true);
        out.split_changes_tokens = true;
    }
    if (out.question.empty())
        throw_error(ErrorKind::input, "expected a question with at least one token, found none");
    return out;
}

bool PromptForm::ends_answer(const Tokenizer &tokenizer, int32_t id) const {
    if (!chat_) return tokenizer.ends_generation(id);
    const std::vector<int32_t> ends = chat_->end_ids(tokenizer);
    return std::binary_search(ends.begin(), ends.end(), id);
}

std::optional<std::string> PromptForm::before_end(const Tokenizer &tokenizer,
                                                  const std::string &answer) const {
    if (!chat_) return std::nullopt;
    size_t end = std::string::npos;
    for (const std::string &mark : chat_->stop_strings(tokenizer))
        end = std::min(end, answer.find(mark));
    if (end == std::string::npos) return std::nullopt;
    return answer.substr(0, end);
}

} // namespace keel::ab
