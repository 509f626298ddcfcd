// Reads the steps of a tokenizer.json: normalizer, pre-tokenizer, post-processor.
#include "text/tokenizer/tokenizer_json.hpp"

namespace keel {

namespace {

constexpr std::size_t max_template_tokens = 64;
constexpr std::size_t max_steps = 32; // DeepSeek has the most: 5
constexpr std::size_t max_replacement_bytes = 64;

SplitBehavior read_behavior(const JsonNode &node) {
    const std::string &name = node.text();
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    node.expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitRegex read_pattern(const JsonNode &node) {
    if (const auto regex = node.find("Regex"))
        return {regex->text(), SplitRegex::Syntax::regex, regex->where()};
    if (const auto literal = node.find("String"))
        return {literal->text(), SplitRegex::Syntax::literal, literal->where()};
    node.fail("expected {\"Regex\": ...} or {\"String\": ...}");
}

void read_normalizer_step(const JsonNode &node, TextNormalizer &out) {
    const std::string &type = type_of(node);
    if (type == "Sequence") {
        for (const JsonNode &step : read_steps(node, "normalizers"))
            if (type_of(step) == "Sequence")
                step.fail("a Sequence within a Sequence is not supported");
            else
                read_normalizer_step(step, out);
    } else if (type == "NFC" || type == "NFKC") {
        out.add_composition(type == "NFKC");
    } else if (type == "Prepend") {
        const std::string &text = node.at("prepend").text();
        if (text.size() > max_replacement_bytes)
            node.at("prepend").fail(
                fmt::format("expected at most {} bytes, found more", max_replacement_bytes));
        if (!text.empty()) out.add_prefix(text);
    } else if (type == "Replace") {
        const JsonNode pattern = node.at("pattern");
        const auto from = pattern.find("String");
        if (!from)
            pattern.fail("only the replacement of plain text is supported: {\"String\": ...}");
        const std::string &to = node.at("content").text();
        if (from->text().empty() || from->text().size() > max_replacement_bytes ||
            to.size() > max_replacement_bytes)
            node.fail(fmt::format("expected texts of 1 to {} bytes", max_replacement_bytes));
        out.add_replacement(from->text(), to);
    } else {
        node.at("type").fail(
            fmt::format("the normalizer {} is not supported; Keel reads NFC, NFKC, Prepend, "
                        "Replace and Sequence",
                        quote_text(type)));
    }
}

void read_template(const JsonNode &node, const PieceTable &pieces, TextFrame &frame) {
    const JsonNode single = node.at("single");
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> after;
    bool text_seen = false;
    for (std::size_t i = 0; i < single.size(); ++i) {
        const JsonNode item = single.element(i);
        if (const auto sequence = item.find("Sequence")) {
            if (text_seen || sequence->at("id").text() != "A")
                sequence->fail("expected the text ({\"Sequence\": {\"id\": \"A\"}}) once and no "
                               "other sequence");
            text_seen = true;
            continue;
        }
        const std::string &name = item.at("SpecialToken").at("id").text();
        const JsonNode ids = node.at("special_tokens").at(name).at("ids");
        for (std::size_t k = 0; k < ids.size(); ++k) {
            const auto id = static_cast<std::int32_t>(ids.element(k).integer(0, max_token_id));
            if (pieces.kind(id) == TokenKind::unused)
                ids.element(k).fail(fmt::format("no token has the id {}", id));
            (text_seen ? after : before).push_back(id);
        }
    }
    if (!text_seen)
        single.fail("expected the place of the text ({\"Sequence\": {\"id\": \"A\"}}) in the "
                    "template, found none");
    if (frame.prefix.size() + before.size() > max_template_tokens ||
        frame.suffix.size() + after.size() > max_template_tokens)
        single.fail(fmt::format("expected at most {} special tokens around a text, found more",
                                max_template_tokens));
    // a later template adds its tokens outside of the tokens of an earlier template
    frame.prefix.insert(frame.prefix.begin(), before.begin(), before.end());
    frame.suffix.insert(frame.suffix.end(), after.begin(), after.end());
}

void read_post_step(const JsonNode &node, const PieceTable &pieces, TextFrame &frame) {
    const std::string &type = type_of(node);
    if (type == "ByteLevel")
        return; // this step changes only offsets of tokens, which Keel does
                // not report
    if (type == "TemplateProcessing") return read_template(node, pieces, frame);
    if (type != "Sequence")
        node.at("type").fail(fmt::format("the post-processor {} is not supported; Keel reads "
                                         "TemplateProcessing, ByteLevel and Sequence",
                                         quote_text(type)));
    const JsonNode list = node.at("processors");
    if (list.size() > 16) list.fail("expected at most 16 post-processors, found more");
    for (std::size_t i = 0; i < list.size(); ++i) read_post_step(list.element(i), pieces, frame);
}

} // namespace

std::vector<JsonNode> read_steps(const JsonNode &component, const char *list_key) {
    if (type_of(component) != "Sequence") return {component};
    const JsonNode list = component.at(list_key);
    if (list.size() > max_steps)
        list.fail(fmt::format("expected at most {} steps, found more", max_steps));
    std::vector<JsonNode> steps;
    for (std::size_t i = 0; i < list.size(); ++i) steps.push_back(list.element(i));
    return steps;
}

TextNormalizer read_normalizer(const JsonNode &root) {
    TextNormalizer out;
    if (const auto node = root.find("normalizer")) read_normalizer_step(*node, out);
    return out;
}

void read_split_step(const JsonNode &node, std::string_view known, PreTokenizer &out) {
    if (type_of(node) == "Split") {
        out.add_split(read_pattern(node.at("pattern")), read_behavior(node.at("behavior")),
                      node.flag_or("invert", false));
    } else if (type_of(node) == "Digits") {
        const bool alone = node.flag_or("individual_digits", false);
        out.add_split(SplitRegex("\\p{N}", SplitRegex::Syntax::regex, node.where()),
                      alone ? SplitBehavior::isolated : SplitBehavior::contiguous, false);
    } else {
        node.at("type").fail(fmt::format(
            "the pre-tokenizer {} is not supported; Keel reads Split, Digits and, at the end, {}",
            quote_text(type_of(node)), known));
    }
}

TextFrame read_post_processor(const JsonNode &root, const PieceTable &pieces) {
    TextFrame frame;
    if (const auto node = root.find("post_processor")) read_post_step(*node, pieces, frame);
    return frame;
}

} // namespace keel
