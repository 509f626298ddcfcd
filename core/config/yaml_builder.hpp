#pragma once

#include "config/yaml_text.hpp"

#include <yaml-cpp/eventhandler.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace keel::pipeline {

// Makes YamlNodes from yaml-cpp's events, for parse_yaml(). Limits the cost of the nodes, including
// expanded aliases. yaml-cpp's own nodes are not used for three reasons: they share aliased
// content, they lose repeated keys, and they let a text of a few lines expand without limit.
class YamlBuilder : public YAML::EventHandler {
  public:
    YamlBuilder(const YamlText &text, std::shared_ptr<const YamlSource> source,
                const YamlLimits &limits);
    YamlNode take() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark &mark) override;
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override;
    void OnAlias(const YAML::Mark &mark, YAML::anchor_t anchor) override;
    void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                  const std::string &value) override;
    void OnSequenceStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value style) override;
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value style) override;
    void OnMapEnd() override { close(); }

  private:
    struct Frame { // an open map or sequence
        YamlNode node;
        YAML::anchor_t anchor = 0;
        bool has_key = false; // for a map: the next value belongs to `key`
        std::string key;
        SourceLocation key_where;
        std::unordered_set<std::string> keys;
    };

    YamlNode make(const YAML::Mark &mark, YamlNode::Kind kind) const;
    void open(const YAML::Mark &mark, YamlNode::Kind kind, const std::string &tag,
              YAML::anchor_t anchor);
    void close();
    void add(YamlNode node, YAML::anchor_t anchor);
    void take_key(Frame &frame, const YamlNode &node);
    void charge(const YamlNode &node);        // counts one new node
    size_t charge_tree(const YamlNode &node); // counts a copy of a whole subtree; returns its depth
    void refuse_tag(const YAML::Mark &mark, const std::string &tag) const;
    [[noreturn]] void refuse(const YamlNode &node, const std::string &what) const;

    const YamlText &text_;
    std::shared_ptr<const YamlSource> source_;
    YamlLimits limits_;
    YamlNode root_;
    std::vector<Frame> stack_;
    std::unordered_map<YAML::anchor_t, YamlNode>
        anchors_; // only complete nodes, so an alias inside its own anchor is not found
    size_t documents_ = 0;
    size_t nodes_ = 0;
    size_t bytes_ = 0;
};

} // namespace keel::pipeline
