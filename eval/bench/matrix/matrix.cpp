#include "eval/bench/matrix/matrix.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "config/config_writer.hpp"
#include "config/schema.hpp"
#include "config/yaml_reader.hpp"
#include "platform/paths.hpp"
#include "run/pipeline.hpp"

#include <algorithm>

namespace keel {
namespace {

using pipeline::describe;
using pipeline::YamlEntry;
using pipeline::YamlNode;
using namespace yaml;

constexpr size_t most_runs = 10'000, most_choices = 1000;

// Reads keys of a pipeline with their values. Returns the keys and values in the form of --set.
std::vector<MatrixSet> read_sets(const YamlNode &node) {
    if (node.is_null()) return {};
    if (!node.is_map())
        fail(node.where(), fmt::format("expected keys of a pipeline for 'set', for example "
                                       "{{model.context: 1024}}, found {}",
                                       describe(node)));
    std::vector<MatrixSet> sets;
    for (const YamlEntry &entry : node.entries) {
        if (entry.key == "model.path" || entry.key == "policy.log")
            fail(entry.where, fmt::format("'{}' cannot be set here", entry.key));
        const YamlNode &value = entry.value;
        if (value.kind == YamlNode::Kind::sequence) {
            std::string list;
            for (const YamlNode &item : value.items)
                list += fmt::format("{}{}", list.empty() ? "" : ", ",
                                    pipeline::yaml_scalar(scalar(item, "a single value")));
            sets.push_back({fmt::format("{}=[{}]", entry.key, list), entry.where});
        } else {
            const std::string &text = scalar(value, "a value, or a list of values");
            sets.push_back(
                {fmt::format("{}={}", entry.key, value.quoted ? pipeline::yaml_scalar(text) : text),
                 entry.where});
        }
    }
    return sets;
}

// Reads an item of an axis. The item is a word, or a map with the word under `key`, a name and
// settings. `setting` is the pipeline's key that the word sets.
MatrixChoice read_choice(const YamlNode &node, const std::string &key, const std::string &setting,
                         std::string *word = nullptr) {
    MatrixChoice choice;
    choice.where = node.where();
    const YamlNode *named = &node;
    if (node.is_map()) {
        check_keys(node, fmt::format("an item with '{}'", key), {key, "name", "set"});
        const YamlEntry *entry = node.find(key);
        if (entry == nullptr) fail(node.where(), fmt::format("'{}' is missing here", key));
        named = &entry->value;
        if (const YamlEntry *name = node.find("name")) choice.name = scalar(name->value, "a name");
    }
    const std::string text = scalar(*named, fmt::format("a {}, or a map with one", key));
    if (choice.name.empty()) choice.name = text;
    if (word != nullptr) *word = text;
    if (!setting.empty())
        choice.sets.push_back({setting + "=" + pipeline::yaml_scalar(text), named->where()});
    if (node.is_map()) {
        if (const YamlEntry *set = node.find("set")) {
            for (MatrixSet &one : read_sets(set->value)) choice.sets.push_back(std::move(one));
        }
    }
    return choice;
}

template <typename Choice> void check_names(const std::vector<Choice> &choices) {
    for (size_t i = 0; i < choices.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            if (choices[i].name == choices[j].name)
                fail(choices[i].where,
                     fmt::format("two items have the name '{}'; give one of them another `name`",
                                 printable(choices[i].name, 60)));
        }
    }
}

// Reads an axis. If the file does not have the axis, returns one choice that sets `setting` to
// `otherwise`. If `otherwise` is empty, this choice has no settings.
std::vector<MatrixChoice> read_axis(const YamlNode &root, const char *key, const char *word,
                                    const char *setting, const std::string &otherwise) {
    std::vector<MatrixChoice> choices;
    if (const YamlEntry *entry = root.find(key)) {
        for (const YamlNode *item : items(entry->value, key, most_choices))
            choices.push_back(read_choice(*item, word, setting));
    } else if (otherwise.empty()) {
        choices.push_back({{}, {}, root.where()});
    } else {
        choices.push_back(
            {otherwise, {{fmt::format("{}={}", setting, otherwise), root.where()}}, root.where()});
    }
    check_names(choices);
    return choices;
}

// The default value of a key of a pipeline.
std::string default_of(std::string_view key) { return pipeline::find_key(key)->default_text(); }

const YamlEntry &need(const YamlNode &root, const std::filesystem::path &file, const char *key) {
    const YamlEntry *entry = root.find(key);
    if (entry == nullptr)
        throw_error(ErrorKind::input,
                    "{}: '{}' is missing; see `keel bench matrix` in docs/reference/bench.md",
                    file.string(), key);
    return *entry;
}

void read_models(const YamlNode &root, const std::filesystem::path &file, BenchMatrix &matrix) {
    for (const YamlNode *item : items(need(root, file, "models").value, "models", most_choices)) {
        std::string word;
        BenchMatrix::Model model;
        static_cast<MatrixChoice &>(model) = read_choice(*item, "path", "", &word);
        model.path = resolve_path(absolute_path(file).parent_path(), word);
        if (model.name == word) model.name = model.path.filename().string();
        matrix.models.push_back(std::move(model));
    }
    check_names(matrix.models);
}

} // namespace

BenchMatrix load_matrix(const std::filesystem::path &file, const std::string &backend) {
    const YamlNode root = pipeline::load_yaml(file);
    if (!root.is_map())
        throw_error(ErrorKind::input, "{}: expected a map with models and lengths, found {}",
                    file.string(), describe(root));
    check_keys(root, "a matrix",
               {"models", "backends", "kv", "policies", "sync", "lengths", "decode", "repeat",
                "batch", "probe_mib", "set"});
    BenchMatrix m;
    read_models(root, file, m);
    m.backends = read_axis(root, "backends", "plugin", "backend.plugin", backend);
    m.caches = read_axis(root, "kv", "dtype", "kv.dtype", default_of("kv.dtype"));
    m.policies =
        read_axis(root, "policies", "plugin", "policy.plugin", default_of("policy.plugin"));
    m.syncs = read_axis(root, "sync", "strategy", "sync.strategy", "");
    for (const YamlNode *item : items(need(root, file, "lengths").value, "lengths", most_runs)) {
        const int64_t length = integer(*item, "a length in tokens", 1, int64_t{1} << 24);
        if (std::find(m.lengths.begin(), m.lengths.end(), length) != m.lengths.end())
            fail(item->where(), fmt::format("the length {} is listed twice; remove one", length));
        m.lengths.push_back(length);
        m.length_places.push_back(item->where());
    }
    const auto optional = [&](const char *key, const char *what, int64_t low, int64_t high) {
        const YamlEntry *entry = root.find(key);
        return entry == nullptr ? std::nullopt
                                : std::optional(integer(entry->value, what, low, high));
    };
    m.decode = optional("decode", "tokens to decode", 1, int64_t{1} << 24).value_or(m.decode);
    m.repeat = optional("repeat", "repeats", 1, 1000).value_or(m.repeat);
    if (const YamlEntry *batch = root.find("batch")) {
        m.sequences.clear();
        for (const YamlNode *item : items(batch->value, "batch", most_choices)) {
            const int64_t n = integer(*item, "sequences at once", 1, Pipeline::most_batch);
            if (std::find(m.sequences.begin(), m.sequences.end(), n) != m.sequences.end())
                fail(item->where(), fmt::format("batch: {} is listed twice; remove one", n));
            m.sequences.push_back(n);
        }
    }
    m.probe_mib = optional("probe_mib", "MiB of the memory probe", 0, int64_t{1} << 20);
    if (const YamlEntry *set = root.find("set")) m.sets = read_sets(set->value);
    const double runs =
        static_cast<double>(m.models.size()) * static_cast<double>(m.backends.size()) *
        static_cast<double>(m.caches.size()) * static_cast<double>(m.policies.size()) *
        static_cast<double>(m.syncs.size()) * static_cast<double>(m.lengths.size());
    if (runs > static_cast<double>(most_runs))
        throw_error(ErrorKind::input, "{}: the file has {:.0f} combinations; expected at most {}",
                    file.string(), runs, most_runs);
    return m;
}

std::string MatrixRun::name() const {
    return fmt::format("{} / {} / {} / {}{} / {}", model, backend, cache, policy,
                       sync.empty() ? "" : " / " + sync, length);
}

std::string MatrixRun::key(const BenchMatrix &matrix, const std::string &circumstances) const {
    std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", circumstances, path.string(), length,
                                   matrix.decode, matrix.repeat, matrix.probe_mib.value_or(-1));
    for (const std::string &set : sets) text += set + '\n';
    // For a single sequence, the key is the same as in versions that could not measure several
    // sequences.
    if (matrix.sequences != std::vector<int64_t>{1})
        text += fmt::format("batch {}\n", fmt::join(matrix.sequences, ","));
    return fingerprint(text);
}

std::string MatrixRun::fault(const Error &error) const {
    constexpr std::string_view mark = "--set ";
    const auto at = [&](const SourceLocation &place, std::string_view text) {
        return fmt::format("{}: {}: {}", to_string(place), name(), text);
    };
    const std::string_view message = error.what();
    if (message.starts_with(path.string())) return at(model_where, message);
    const auto *placed = dynamic_cast<const PlacedError *>(&error);
    if (placed == nullptr || !placed->where().file.starts_with(mark)) return at(where, message);
    const std::string key = placed->where().file.substr(mark.size());
    for (size_t i = sets.size(); i-- > 0;) { // the loop begins at the end, because a later setting
                                             // overrides an earlier setting
        const bool is_it = sets[i].starts_with(key) && sets[i].size() > key.size() &&
                           (sets[i][key.size()] == '=' || sets[i][key.size()] == '.');
        if (is_it) return at(set_places[i], placed->text());
    }
    return at(key == "model.path" ? model_where : where, message);
}

std::string MatrixRun::file_name(const std::string &key) const {
    std::string slug;
    for (const char c : fmt::format("{}-{}-{}-{}{}-{}", model, backend, cache, policy,
                                    sync.empty() ? "" : "-" + sync, length)) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '_';
        slug += plain ? c : '_';
    }
    constexpr size_t longest = 150;
    return slug.substr(0, longest) + "-" + key + ".json";
}

std::vector<MatrixRun> matrix_runs(const BenchMatrix &m) {
    std::vector<MatrixRun> runs;
    const auto add = [&](const BenchMatrix::Model &model, const MatrixChoice &backend,
                         const MatrixChoice &cache, const MatrixChoice &policy,
                         const MatrixChoice &sync) {
        MatrixRun run;
        run.model = model.name;
        run.backend = backend.name;
        run.cache = cache.name;
        run.policy = policy.name;
        run.sync = sync.name;
        run.path = model.path;
        run.model_where = model.where;
        const auto add_sets = [&](const std::vector<MatrixSet> &sets) {
            for (const MatrixSet &set : sets) {
                run.sets.push_back(set.text);
                run.set_places.push_back(set.where);
            }
        };
        add_sets(m.sets);
        const MatrixChoice *choices[] = {&model, &backend, &cache, &policy, &sync};
        for (const MatrixChoice *choice : choices) {
            add_sets(choice->sets);
            if (choice->where.line >= run.where.line) run.where = choice->where;
        }
        for (size_t i = 0; i < m.lengths.size(); ++i) {
            run.length = m.lengths[i];
            run.length_where = m.length_places[i];
            runs.push_back(run);
        }
    };
    for (const BenchMatrix::Model &model : m.models)
        for (const MatrixChoice &backend : m.backends)
            for (const MatrixChoice &cache : m.caches)
                for (const MatrixChoice &policy : m.policies)
                    for (const MatrixChoice &sync : m.syncs)
                        add(model, backend, cache, policy, sync);
    return runs;
}

} // namespace keel
