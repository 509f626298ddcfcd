#include "config/yaml_builder.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <yaml-cpp/mark.h>

#include <algorithm>

namespace keel::pipeline {

YamlBuilder::YamlBuilder(const YamlText &text, std::shared_ptr<const YamlSource> source,
                         const YamlLimits &limits)
    : text_(text), source_(std::move(source)), limits_(limits) {
    root_.source = source_;
    root_.line = root_.column = 1;
}

YamlNode YamlBuilder::make(const YAML::Mark &mark, YamlNode::Kind kind) const {
    YamlNode node;
    node.kind = kind;
    node.source = source_;
    std::tie(node.line, node.column) = text_.place(mark);
    return node;
}

void YamlBuilder::refuse(const YamlNode &node, const std::string &what) const {
    throw_at(node.where(), ErrorKind::input, "{}", what);
}

void YamlBuilder::refuse_tag(const YAML::Mark &mark, const std::string &tag) const {
    if (tag.empty() || tag == "?" || tag == "!")
        return; // the scalar has no tag, or only the tag that yaml-cpp itself adds to plain or
                // quoted scalars
    refuse(
        make(mark, YamlNode::Kind::null),
        fmt::format("expected a plain value, found the tag '{}'; remove it", printable(tag, 60)));
}

void YamlBuilder::charge(const YamlNode &node) {
    ++nodes_;
    bytes_ += node.text.size();
    if (nodes_ > limits_.nodes || bytes_ > 4 * limits_.bytes)
        refuse(node, fmt::format("expected at most {} values, found more (an alias counts as all "
                                 "values of its anchor)",
                                 limits_.nodes));
}

size_t YamlBuilder::charge_tree(const YamlNode &node) {
    charge(node);
    size_t depth = 0;
    for (const YamlNode &item : node.items) depth = std::max(depth, charge_tree(item));
    for (const YamlEntry &entry : node.entries) depth = std::max(depth, charge_tree(entry.value));
    return depth +
           (node.kind == YamlNode::Kind::map || node.kind == YamlNode::Kind::sequence ? 1 : 0);
}

void YamlBuilder::OnDocumentStart(const YAML::Mark &mark) {
    if (++documents_ > 1)
        refuse(make(mark, YamlNode::Kind::null),
               "expected one YAML document, found a second one ('---')");
}

void YamlBuilder::OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) {
    YamlNode node = make(mark, YamlNode::Kind::null);
    // For "key:" without a value, yaml-cpp's mark is the place of the next token, which can be far
    // below. So the node gets the place of the key.
    if (!stack_.empty() && stack_.back().has_key) {
        node.line = stack_.back().key_where.line;
        node.column = stack_.back().key_where.column;
    }
    charge(node);
    add(std::move(node), anchor);
}

void YamlBuilder::OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                           const std::string &value) {
    refuse_tag(mark, tag);
    YamlNode node = make(mark, YamlNode::Kind::scalar);
    node.text = value;
    node.quoted = tag == "!";
    charge(node);
    add(std::move(node), anchor);
}

void YamlBuilder::OnAlias(const YAML::Mark &mark, YAML::anchor_t anchor) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
        refuse(
            make(mark, YamlNode::Kind::null),
            "expected an alias of a complete value, found an alias inside the value that it names");
    if (stack_.size() + charge_tree(found->second) > limits_.depth)
        refuse(make(mark, YamlNode::Kind::null),
               fmt::format("expected at most {} levels, found more", limits_.depth));
    add(found->second, 0);
}

void YamlBuilder::open(const YAML::Mark &mark, YamlNode::Kind kind, const std::string &tag,
                       YAML::anchor_t anchor) {
    refuse_tag(mark, tag);
    Frame frame;
    frame.node = make(mark, kind);
    frame.anchor = anchor;
    charge(frame.node);
    if (stack_.size() >= limits_.depth)
        refuse(frame.node, fmt::format("expected at most {} levels, found more", limits_.depth));
    stack_.push_back(std::move(frame));
}

void YamlBuilder::OnSequenceStart(const YAML::Mark &mark, const std::string &tag,
                                  YAML::anchor_t anchor, YAML::EmitterStyle::value) {
    open(mark, YamlNode::Kind::sequence, tag, anchor);
}

void YamlBuilder::OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                             YAML::EmitterStyle::value) {
    open(mark, YamlNode::Kind::map, tag, anchor);
}

void YamlBuilder::close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(frame.node), frame.anchor);
}

void YamlBuilder::take_key(Frame &frame, const YamlNode &node) {
    if (node.kind != YamlNode::Kind::scalar)
        refuse(node, fmt::format("expected a word as a key, found {}", describe(node)));
    if (!frame.keys.insert(node.text).second) {
        const YamlEntry *first = frame.node.find(node.text);
        refuse(node, fmt::format("expected each key once, found '{}' again (first at {})",
                                 printable(node.text, 60), to_string(first->where)));
    }
    frame.key = node.text;
    frame.key_where = node.where();
    // Nulls copy the place of the key, so line and column are set even if messages do not show
    // them.
    frame.key_where.line = node.line;
    frame.key_where.column = node.column;
    frame.has_key = true;
}

void YamlBuilder::add(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) {
        charge_tree(node);
        anchors_.insert_or_assign(anchor, node);
    }
    if (stack_.empty()) {
        root_ = std::move(node);
        return;
    }
    Frame &frame = stack_.back();
    if (frame.node.kind == YamlNode::Kind::sequence) {
        frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
        take_key(frame, node);
    } else {
        frame.has_key = false;
        SourceLocation where = frame.key_where;
        if (source_->is_override) where.line = where.column = 0;
        frame.node.entries.push_back({std::move(frame.key), std::move(where), std::move(node)});
    }
}

} // namespace keel::pipeline
