#include "console.hpp"
#include "pipeline_arguments.hpp"
#include "run_report.hpp"
#include "text_input.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/page/text_table.hpp"
#include "run/conversation.hpp"
#include "text/chat_prompt.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <charconv>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeOptions {
    std::string model, file, chat, chat_template;
    std::optional<std::string> text;
    std::vector<std::string> decode;
    bool pieces = false, no_special = false, json = false, count = false, show_text = false;
};

std::string input(const TokenizeOptions &o) {
    if (o.text) return o.text == "-" ? read_text("-") : *o.text;
    if (!o.file.empty()) return read_exact_text(o.file);
    if (auto text = piped_text(true)) return *std::move(text);
    throw_error(ErrorKind::usage,
                "there is no text; give the text as TEXT, with -f FILE, or through a pipe");
}

// Reads ids in the forms "1 2 3", "1,2,3" and "[1, 2, 3]".
std::vector<int32_t> parse_ids(const std::string &text, const Tokenizer &tokenizer) {
    constexpr std::string_view between = " \t\r\n,[]";
    std::vector<int32_t> ids;
    for (size_t at = text.find_first_not_of(between); at != std::string::npos;
         at = text.find_first_not_of(between, at)) {
        const size_t end = std::min(text.find_first_of(between, at), text.size());
        int32_t id = 0;
        const auto [last, error] = std::from_chars(text.data() + at, text.data() + end, id);
        if (error != std::errc() || last != text.data() + end || id < 0 ||
            id >= tokenizer.vocab_size()) {
            throw_error(ErrorKind::usage, "--decode: expected token ids from 0 to {}, found '{}'",
                        tokenizer.vocab_size() - 1,
                        printable(std::string_view(text).substr(at, end - at), 40));
        }
        ids.push_back(id);
        at = end;
    }
    return ids;
}

const char *kind_word(TokenKind kind) {
    switch (kind) {
    case TokenKind::special: return "special";
    case TokenKind::added: return "added";
    case TokenKind::unused: return "unused";
    case TokenKind::ordinary: break;
    }
    return "";
}

int decode(const TokenizeOptions &o, const Tokenizer &tokenizer) {
    std::string text;
    for (const std::string &part : o.decode) text += (part == "-" ? read_text("-") : part) + " ";
    const std::vector<int32_t> ids = parse_ids(text, tokenizer);
    const std::string decoded = tokenizer.decode(ids, o.no_special);
    if (o.json) {
        print_json({{"ids", ids}, {"text", decoded}});
    } else {
        console().out(decoded);
        console().end_line();
    }
    return 0;
}

// The prompt of a conversation, as the model's chat template writes it.
std::vector<ChatPiece> chat_prompt(const TokenizeOptions &o, const ChatTemplate &chat,
                                   const Tokenizer &tokenizer) {
    const std::string name = o.chat == "-" ? "standard input" : o.chat;
    return render_chat(chat, read_chat_request(read_text(o.chat), name), tokenizer);
}

void print_ids(const TokenizeOptions &o, const Tokenizer &tokenizer,
               const std::vector<int32_t> &ids, const std::string &text) {
    if (o.json) {
        Json json = {{"count", ids.size()}, {"ids", ids}};
        if (!o.chat.empty()) json["text"] = text;
        if (o.pieces) {
            json["pieces"] = Json::array();
            for (const int32_t id : ids) json["pieces"].push_back(tokenizer.piece(id));
        }
        print_json(json);
    } else if (o.count) {
        console().out(fmt::format("{}\n", ids.size()));
    } else if (o.pieces) {
        std::vector<std::vector<std::string>> rows;
        for (const int32_t id : ids)
            rows.push_back(
                {std::to_string(id), quoted(tokenizer.piece(id)), kind_word(tokenizer.kind(id))});
        console().out(left_table(rows));
    } else {
        console().out(fmt::format("{}\n", fmt::join(ids, " ")));
    }
}

int tokenize(const TokenizeOptions &o) {
    const std::string folder = pipeline::model_folder(o.model);
    const auto tokenizer = load_tokenizer(folder);
    if (!o.decode.empty()) return decode(o, *tokenizer);
    std::string text;
    std::vector<int32_t> ids;
    if (o.chat.empty()) {
        ids = tokenizer->encode(input(o), !o.no_special);
    } else {
        const ChatTemplate chat = choose_chat_template(folder, o.chat_template);
        const std::vector<ChatPiece> pieces = chat_prompt(o, chat, *tokenizer);
        text = chat.text(*tokenizer, pieces);
        if (o.show_text) {
            console().out(text);
            return 0;
        }
        ids = chat.encode(*tokenizer, pieces, false);
    }
    print_ids(o, *tokenizer, ids, text);
    return 0;
}

} // namespace

void add_tokenize(Command &keel, Program &program) {
    Command &command =
        add_command(keel, program, "tokenize", "Convert text to a model's token ids, or back",
                    {{"keel tokenize models/tiny \"Once upon a time\" --pieces", ""},
                     {"keel tokenize models/tiny --decode 4094 953 310", ""},
                     {"keel tokenize models/tiny --count < story.txt", ""},
                     {"keel tokenize models/assistant --chat talk.json --text",
                      "prints the prompt that the model's chat template writes"}});
    auto o = std::make_shared<TokenizeOptions>();
    command.argument(
        "MODEL", o->model,
        "The folder of a model, its tokenizer.json or tokenizer.model, or a GGUF file (a GGUF file "
        "with only a vocabulary is enough)");
    command.argument("TEXT", o->text, "The text (default: the text from a pipe)").optional();
    command.option("-f,--file FILE", o->file, "Read the text from a file; '-': standard input")
        .excludes({"TEXT"});
    command
        .option("--chat FILE", o->chat,
                "Use the prompt of a conversation: a JSON list of messages with role and content, "
                "or an object with messages, tools and chat_template_kwargs; '-': standard input")
        .excludes({"TEXT", "--file", "--no-special", "--decode"});
    command
        .option("--template NAME", o->chat_template,
                "With --chat: name of the chat template (default: the template in the model's "
                "files)")
        .needs({"--chat"});
    command
        .flag("--text", o->show_text,
              "With --chat: print the text of the prompt, without a newline after it")
        .needs({"--chat"})
        .excludes({"--pieces", "--count", "--json"});
    command.flag("--pieces", o->pieces, "Print one token on each line: id and text");
    command.flag("--count", o->count, "Print only the number of tokens").excludes({"--pieces"});
    command.flag("--no-special", o->no_special,
                 "Do not add the special tokens that begin and end a text");
    command
        .option("--decode IDS", o->decode,
                "Convert ids to text: 1 2 3, or 1,2,3; '-': standard input")
        .many()
        .excludes({"TEXT", "--file", "--pieces", "--count"});
    command.flag("--json", o->json, "Print a JSON object");
    command.action = [o] { return tokenize(*o); };
}

} // namespace keel::cli
