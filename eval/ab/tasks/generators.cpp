#include "eval/ab/tasks/generators.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel::ab {
namespace {

std::vector<std::string> words(std::string_view text) {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        out.emplace_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

// Words from the training corpus of the model models/tiny. Words that are not in this corpus would
// make the task much harder for models/tiny.
const std::vector<std::string> first_names =
    words("Lily Tom Anna Ben Mia Sam Lucy Max Sue Tim Amy Jack Emma Leo Rose Bob Ella Finn Zoe Dan "
          "Kim Joe Nina Ted Ivy Roy Jane Carl Ruth Paul");
const std::vector<std::string> things =
    words("box bag jar chest basket drawer pocket bucket hat cup cave house boat tree garden");
const std::vector<std::string> colors =
    words("red blue green yellow pink white black brown orange purple gray golden");
const std::vector<std::string> objects = words("key ball stone shell coin ring leaf book doll kite "
                                               "bell toy map rope lamp spoon feather button");

// Returns `at` if `at` is a boundary between UTF-8 characters. Otherwise returns the nearest
// boundary before `at`.
size_t character_boundary(std::string_view text, size_t at) {
    at = std::min(at, text.size());
    while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80)
        --at;
    return at;
}

// True if a sentence ends just before the space at index `space`. Ignores quotation marks and
// brackets between the end of the sentence and the space.
bool ends_sentence(std::string_view text, size_t space) {
    size_t at = space;
    while (at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'' || text[at - 1] == ')')) --at;
    return at > 0 && (text[at - 1] == '.' || text[at - 1] == '!' || text[at - 1] == '?');
}

// Returns the last index at or before `limit` at which a sentence begins.
size_t sentence_begin(std::string_view text, size_t limit) {
    for (size_t at = std::min(limit, text.size()); at > 0; --at) {
        if (text[at - 1] == ' ' && ends_sentence(text, at - 1)) return at;
    }
    return 0;
}

bool is_of_word(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || (byte >= '0' && byte <= '9') ||
           ((byte | 0x20U) >= 'a' && (byte | 0x20U) <= 'z');
}

// Shortens `text` to at most `bytes` bytes. Cuts only after a word, and adds a full stop if the
// last sentence is cut. A text without a space is cut between two characters.
std::string cut_behind_word(std::string text, size_t bytes) {
    text.resize(character_boundary(text, bytes));
    for (size_t space = text.rfind(' '); space != std::string::npos && space > 0;
         space = text.rfind(' ', space - 1)) {
        if (ends_sentence(text, space)) return text.substr(0, space + 1);
        size_t word = space;
        while (word > 0 && !is_of_word(text[word - 1])) --word;
        if (word > 0 && word + 2 <= bytes) return text.substr(0, word) + ". ";
    }
    return text;
}

std::string trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    std::string out(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return out;
}

} // namespace

Filler::Filler(std::string_view text, const std::string &name) {
    constexpr std::string_view mark = "<|endoftext|>";
    const std::string_view separator =
        text.find(mark) == std::string_view::npos ? std::string_view("\n") : mark;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(separator, at), text.size());
        std::string piece = trimmed(text.substr(at, end - at));
        if (!piece.empty()) pieces_.push_back(std::move(piece));
        at = end + separator.size();
    }
    if (pieces_.empty())
        throw_error(ErrorKind::input, "{}: expected a text to fill prompts with, found nothing",
                    name);
}

std::string Filler::make(SplitMix64 &random, size_t bytes) const {
    if (bytes == 0) return {};
    std::string text;
    while (text.size() < bytes) {
        if (!text.empty()) text += ' ';
        text += random.choice(pieces_);
    }
    return cut_behind_word(std::move(text), bytes);
}

RecallDocument make_passkey(SplitMix64 random, const Filler &filler, size_t bytes, double depth) {
    std::string key;
    for (int i = 0; i < 5; ++i) key += static_cast<char>('0' + random.below(10));
    const std::string needle =
        fmt::format("The pass key is {0}. Remember it. {0} is the pass key.\n", key);
    const std::string text = filler.make(random, bytes);
    const size_t cut =
        sentence_begin(text, static_cast<size_t>(depth * static_cast<double>(text.size())));
    RecallDocument d;
    d.context = "There is a pass key hidden in this text. Find it and remember it.\n" +
                text.substr(0, cut) + needle + text.substr(cut) + "\n";
    // In plain text, the space before a digit is a token of its own. The model looks the number up
    // while it reads this space. So the space belongs to the opening of the answer, which the model
    // reads after the eviction.
    d.questions.push_back(
        {{"What is the pass key?", " The pass key is "},
         {"What is the pass key? Answer with the number alone.", "The pass key is the number"},
         key,
         depth});
    return d;
}

RecallDocument make_facts(SplitMix64 random, const Filler &filler, size_t bytes) {
    const size_t n = 2 + random.below(5);
    std::vector<std::string> owners = first_names;
    random.shuffle(owners);
    owners.resize(n);
    RecallDocument d;
    d.context = "Remember these facts.\n";
    std::vector<size_t> begins;
    for (const std::string &owner : owners) {
        const std::string &thing = random.choice(things);
        const std::string &color = random.choice(colors);
        const std::string &object = random.choice(objects);
        begins.push_back(d.context.size());
        d.context +=
            fmt::format("Fact: In {}'s {} there is a {} {}.\n", owner, thing, color, object);
        if (bytes > 0) d.context += filler.make(random, std::max<size_t>(bytes / n, 1)) + "\n";
        // A model that was not trained on these documents would begin its answer by repeating the
        // first words of the fact. So in a chat these words are the opening of the answer.
        const std::string question = fmt::format("Question: What is in {}'s {}?", owner, thing);
        d.questions.push_back({{question, " Answer:"},
                               {question, fmt::format("In {}'s {} there is", owner, thing)},
                               fmt::format("a {} {}", color, object),
                               0});
    }
    for (size_t i = 0; i < n; ++i)
        d.questions[i].depth =
            static_cast<double>(begins[i]) / static_cast<double>(d.context.size());
    random.shuffle(d.questions);
    return d;
}

} // namespace keel::ab
