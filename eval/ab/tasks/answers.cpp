#include "eval/ab/tasks/answers.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

namespace keel::ab {
namespace {

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

// Changes only ASCII letters to lower case, so that the result does not depend on the locale. For
// English, the scoring scripts of SQuAD and LongBench give the same result.
std::string lower(std::string_view text) {
    std::string out(text);
    for (char &c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
}

bool is_punctuation(char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

// Returns the words of a text in the normal form of the SQuAD benchmark: lower case, without
// punctuation, without articles.
std::vector<std::string> normal_words(std::string_view text) {
    std::string plain = lower(text);
    plain.erase(std::remove_if(plain.begin(), plain.end(), is_punctuation), plain.end());
    std::istringstream stream(plain);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
        if (word != "a" && word != "an" && word != "the") words.push_back(word);
    }
    return words;
}

double f1(const std::vector<std::string> &answer, const std::vector<std::string> &expected) {
    if (answer.empty() || expected.empty()) return answer.empty() && expected.empty() ? 1 : 0;
    std::map<std::string, int64_t> left;
    for (const std::string &word : expected) ++left[word];
    double common = 0;
    for (const std::string &word : answer) {
        if (left[word]-- > 0) ++common;
    }
    if (common == 0) return 0;
    const double precision = common / static_cast<double>(answer.size()),
                 recall = common / static_cast<double>(expected.size());
    return 2 * precision * recall / (precision + recall);
}

} // namespace

double answer_score(AnswerMetric metric, std::string_view answer,
                    std::span<const std::string> expected) {
    if (expected.empty()) return 0;
    const std::string text = lower(answer);
    const std::vector<std::string> words = normal_words(answer);
    double found = 0, best = 0;
    for (const std::string &one : expected) {
        const bool contained = text.find(lower(one)) != std::string::npos;
        found += contained ? 1 : 0;
        switch (metric) {
        case AnswerMetric::substring_all:
        case AnswerMetric::substring_any: best = std::max(best, contained ? 1.0 : 0.0); break;
        case AnswerMetric::exact:
            best = std::max(best, words == normal_words(one) ? 1.0 : 0.0);
            break;
        case AnswerMetric::f1: best = std::max(best, f1(words, normal_words(one))); break;
        }
    }
    return metric == AnswerMetric::substring_all ? found / static_cast<double>(expected.size())
                                                 : best;
}

bool contains_words(std::string_view answer, std::span<const std::string> expected) {
    const std::vector<std::string> words = normal_words(answer);
    return std::any_of(expected.begin(), expected.end(), [&](const std::string &one) {
        const std::vector<std::string> wanted = normal_words(one);
        return !wanted.empty() &&
               std::search(words.begin(), words.end(), wanted.begin(), wanted.end()) != words.end();
    });
}

std::string first_sentence(std::string_view answer) {
    while (!answer.empty() && is_space(answer.front())) answer.remove_prefix(1);
    answer = answer.substr(0, answer.find_first_of(".\n"));
    while (!answer.empty() && is_space(answer.back())) answer.remove_suffix(1);
    return std::string(answer);
}

} // namespace keel::ab
