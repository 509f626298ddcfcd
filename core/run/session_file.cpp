#include "run/session_file.hpp"

#include "base/display.hpp"
#include "kv/evict/plugin_state.hpp"
#include "model/rope_frequencies.hpp"
#include "platform/mapped_file.hpp"
#include "platform/new_file.hpp"
#include "run/checksum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <utility>
#include <vector>

// The bytes of a session file, in this order:
// - a magic number and a version
// - the facts: properties of the pipeline that must be equal when the file is loaded, see
//   facts_of()
// - the session
// - the extras, see SessionExtras
// - a checksum of all these bytes
// StateWriter writes facts, session and extras.
namespace keel {
namespace {

static_assert(std::endian::native == std::endian::little, "session files are little-endian");

constexpr std::array<char, 16> magic = {'k', 'e', 'e', 'l', ' ',  's',  'e', 's',
                                        's', 'i', 'o', 'n', '\n', 0x1a, 0,   0};
constexpr uint32_t version = 6;
constexpr size_t max_facts = 64, max_notes = 64;

class FileWriter final : public StateWriter {
  public:
    explicit FileWriter(NewFile &file) : file_(file) { buffer_.reserve(chunk); }
    void write(const void *data, size_t bytes) override {
        checksum_.add(data, bytes);
        const auto *p = static_cast<const std::byte *>(data);
        while (bytes > 0) {
            const size_t n = std::min(bytes, chunk - buffer_.size());
            buffer_.insert(buffer_.end(), p, p + n);
            p += n;
            bytes -= n;
            if (buffer_.size() == chunk) flush();
        }
    }
    void finish() {
        const uint64_t sum = checksum_.value();
        write(&sum, sizeof sum);
        flush();
        file_.publish();
    }

  private:
    static constexpr size_t chunk = size_t{1} << 18;
    void flush() {
        file_.write(buffer_);
        buffer_.clear();
    }
    NewFile &file_;
    std::vector<std::byte> buffer_;
    Checksum checksum_;
};

// Returns a hash of the names, types, shapes, and a few bytes of each tensor. The hash
// distinguishes models with equal shapes.
std::string weights_fingerprint(const ModelSource &source) {
    constexpr size_t piece = 64, pieces = 4;
    std::vector<const TensorInfo *> tensors;
    for (const TensorInfo &tensor : source.tensors()) tensors.push_back(&tensor);
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorInfo *a, const TensorInfo *b) { return a->name < b->name; });
    Checksum sum;
    for (const TensorInfo *tensor : tensors) {
        sum.add(tensor->name.data(), tensor->name.size());
        sum.add(tensor->dtype_name.data(), tensor->dtype_name.size());
        sum.add(tensor->shape.data(), tensor->shape.size() * sizeof tensor->shape[0]);
        const auto bytes = source.bytes(*tensor);
        if (bytes.size() <= piece * pieces) {
            sum.add(bytes.data(), bytes.size());
            continue;
        }
        for (size_t i = 0; i < pieces; ++i)
            sum.add(bytes.data() + (bytes.size() - piece) * i / (pieces - 1), piece);
    }
    return fmt::format("{:016x}", sum.value());
}

// Returns a hash of the texts of all ids of a tokenizer.
std::string tokenizer_fingerprint(const Tokenizer *tokenizer) {
    if (tokenizer == nullptr) return "none";
    Checksum sum;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
        const std::string_view piece = tokenizer->piece(id);
        const auto kind = static_cast<uint32_t>(tokenizer->kind(id));
        const auto bytes = static_cast<uint64_t>(piece.size());
        sum.add(&kind, sizeof kind);
        sum.add(&bytes, sizeof bytes);
        sum.add(piece.data(), piece.size());
    }
    return fmt::format("{} tokens, {:016x}", tokenizer->vocab_size(), sum.value());
}

std::string rope_text(const ModelConfig &m, int64_t context) {
    const RopeScaling &r = m.rope_scaling;
    const bool is_long = has_long_factors(r, context);
    Checksum details;
    const auto add = [&](double value) { details.add(&value, sizeof value); };
    for (const double value :
         {r.low_freq_factor, r.high_freq_factor, r.beta_fast, r.beta_slow, m.query_scale_beta})
        add(value);
    for (const int64_t value :
         {r.original_context, int64_t{r.truncate}, m.rot, int64_t{m.rope_interleaved},
          int64_t{is_long}, m.query_scale_context})
        add(static_cast<double>(value));
    add(static_cast<float>(r.attention_factor)); // logarithms differ in the last bits of a double
    for (const double factor : is_long ? r.long_factors : r.factors) add(factor);
    for (const bool none : m.no_rope_layers) add(none ? 1 : 0);
    return fmt::format("theta {}, scaling {} by {}, details {:016x}, trained to {}", m.rope_theta,
                       static_cast<int>(r.kind), r.factor, details.value(), m.max_positions);
}

std::string window_text(const ModelConfig &m) {
    if (!m.sliding_window) return "none";
    Checksum layers;
    for (const bool slides : m.sliding_layers) layers.add(slides ? "s" : "f", 1);
    return fmt::format("{} in layers {:016x}, theta {}", *m.sliding_window, layers.value(),
                       m.local_rope_theta ? fmt::format("{}", *m.local_rope_theta)
                                          : "as elsewhere");
}

std::string params_text(const BoundPlugin &plugin) {
    std::string text;
    for (const keel_param &param : plugin.params.rows()) {
        if (!text.empty()) text += ", ";
        switch (param.type) {
        case KEEL_PARAM_FLOAT: text += fmt::format("{}: {}", param.key, param.f); break;
        case KEEL_PARAM_BOOL: text += fmt::format("{}: {}", param.key, param.i != 0); break;
        case KEEL_PARAM_INT: text += fmt::format("{}: {}", param.key, param.i); break;
        default: text += fmt::format("{}: {}", param.key, param.s != nullptr ? param.s : "");
        }
    }
    return "{" + text + "}";
}

// Describes in how many layers the cache holds only a window. This number also depends on
// model.context.
std::string held_text(const Pipeline &pipeline) {
    const LayerSplit &split = pipeline.engine().split;
    if (split.window() == 0) return "none held";
    const bool is_held = split.windowed() > 0 || pipeline.policy_setup().shape().window > 0;
    return is_held ? fmt::format("held in {} of {} layers", split.model_windowed(),
                                 split.model_layers())
                   : "none held";
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// Returns the facts, each with name and value. A fact is a property that must be equal in the
// pipeline that saves a session and in the pipeline that loads it. The names are words that users
// know.
Facts facts_of(Pipeline &pipeline) {
    const ModelConfig &m = pipeline.model();
    const PolicySetup &plan = pipeline.policy_setup();
    const KvShape &kv = pipeline.kv_shape();
    constexpr std::array<const char *, 3> modes = {"absolute", "rerotated", "auto"};
    Facts facts;
    facts.emplace_back("architecture", std::string(m.architecture->name));
    facts.emplace_back("layers", std::to_string(m.layers));
    facts.emplace_back("hidden size", std::to_string(m.hidden_size));
    facts.emplace_back("attention heads",
                       fmt::format("{} of {}, {} for keys", m.heads, m.head_dim, m.kv_heads));
    facts.emplace_back("vocabulary", std::to_string(m.vocab_size));
    facts.emplace_back("feed-forward", fmt::format("{}, activation {}", m.intermediate_size,
                                                   static_cast<int>(m.activation)));
    if (const Experts &e = m.experts; e.count > 0)
        facts.emplace_back("experts",
                           fmt::format("{} of {} of size {}, normalized {}, shared {}", e.used,
                                       e.count, e.size, e.normalize, e.shared_size));
    facts.emplace_back("norms",
                       fmt::format("eps {}, offset {}, of queries and keys {}{}, before {}, after "
                                   "{}, layer norms {}",
                                   m.rms_norm_eps, m.norm_offset, m.qk_norm,
                                   m.qk_norm_joint ? " over all heads" : "", m.pre_norms,
                                   m.post_norms, m.layer_norm));
    facts.emplace_back("blocks", fmt::format("parallel {}, scale {}, logits times {}",
                                             m.parallel_blocks, m.residual_scale, m.logit_scale));
    facts.emplace_back("biases", fmt::format("qkv {}, attention {}, feed-forward {}", m.qkv_bias,
                                             m.attention_out_bias, m.mlp_bias));
    facts.emplace_back("embeddings",
                       fmt::format("tied {}, scale {}", m.tied_embeddings, m.embedding_scale));
    facts.emplace_back(
        "attention scale",
        fmt::format("{}, query scalar {}", m.attention_scale(),
                    m.query_scalar ? fmt::format("{}", *m.query_scalar) : "of head_dim"));
    facts.emplace_back(
        "soft caps", fmt::format("attention {}, logits {}", m.attention_softcap, m.logit_softcap));
    facts.emplace_back("sliding window", window_text(m));
    facts.emplace_back("attention windows", held_text(pipeline));
    facts.emplace_back("RoPE", rope_text(m, pipeline.engine().rope_context));
    facts.emplace_back("tokenizer", tokenizer_fingerprint(pipeline.tokenizer()));
    facts.emplace_back("weights of type", pipeline.weights().dtype_name());
    facts.emplace_back("weights with fingerprint", weights_fingerprint(pipeline.source()));
    facts.emplace_back("kv.key_dtype", keel_dtype_name(kv.key_dtype));
    facts.emplace_back("kv.value_dtype", keel_dtype_name(kv.value_dtype));
    facts.emplace_back("policy.plugin", plan.config().policy.name);
    facts.emplace_back("policy.params", params_text(pipeline.policies().own().policy));
    facts.emplace_back("policy.seed",
                       plan.keeps_all() ? "none" : std::to_string(plan.config().seed));
    facts.emplace_back("policy.positions", plan.may_move_keys()
                                               ? modes[static_cast<size_t>(plan.config().positions)]
                                               : "absolute");
    return facts;
}

void check_facts(StateReader &in, Pipeline &pipeline) {
    const auto count = in.get<uint32_t>("facts");
    if (count > max_facts)
        in.fail("expected at most {} facts that describe the pipeline, found {}; "
                "the file is damaged",
                max_facts, count);
    Facts saved;
    for (uint32_t i = 0; i < count; ++i) {
        std::string name = in.get_text("a fact"), value = in.get_text("a fact");
        saved.emplace_back(std::move(name), std::move(value));
    }
    const Facts mine = facts_of(pipeline);
    for (size_t i = 0; i < std::max(saved.size(), mine.size()); ++i) {
        if (i >= saved.size() || i >= mine.size() || saved[i].first != mine[i].first)
            in.fail("the session was saved by another version of Keel, which describes a pipeline "
                    "differently; load the session with that version");
        if (saved[i].second != mine[i].second) {
            in.fail("the session was saved with {} {}, but this pipeline has {}; load a session "
                    "with the settings that it was saved with",
                    mine[i].first, printable(saved[i].second, 100), printable(mine[i].second, 100));
        }
    }
}

void write_extras(StateWriter &out, const SessionExtras &extras) {
    out.put(static_cast<uint32_t>(extras.random ? 1 : 0));
    if (extras.random) out.put_all<uint64_t>(*extras.random);
    out.put(static_cast<uint32_t>(extras.notes.size()));
    for (const auto &[name, text] : extras.notes) {
        out.put_text(name);
        out.put_text(text);
    }
}

SessionExtras read_extras(StateReader &in) {
    SessionExtras extras;
    if (in.get<uint32_t>("the sampler") != 0) {
        Rng::State state;
        for (uint64_t &word : state) word = in.get<uint64_t>("the sampler");
        extras.random = state;
    }
    const auto notes = in.get<uint32_t>("notes");
    if (notes > max_notes)
        in.fail("expected at most {} notes, found {}; the file is damaged", max_notes, notes);
    for (uint32_t i = 0; i < notes; ++i) {
        std::string name = in.get_text("a note");
        extras.notes[std::move(name)] = in.get_text("a note");
    }
    return extras;
}

} // namespace

namespace {

// A session file has the policy of the pipeline's config, so a session under an added policy cannot
// be saved.
void check_policy(Session &session) {
    if (session.pipeline().policies().is_own(session.cache().setup())) return;
    throw_error(
        ErrorKind::usage,
        "policy {} was added to an open pipeline, and only a session under the policy of the "
        "pipeline's config can be saved or loaded; open a pipeline with this policy in the config",
        session.cache().setup().config().policy.name);
}

} // namespace

void check_savable(const Pipeline &pipeline) {
    if (pipeline.mode() == pipeline::HybridMode::by_layers)
        throw_at(
            pipeline.config().hybrid.layers.where, ErrorKind::input,
            "a session whose layers are on several backends cannot be saved in this version; use "
            "one backend, or use hybrid.prefill and hybrid.decode in place of hybrid.layers");
    for (const auto &engine : pipeline.engines()) {
        const KvShape &own = engine->kv_shape, &first = pipeline.engines().front()->kv_shape;
        if (own.key_dtype != first.key_dtype || own.value_dtype != first.value_dtype)
            throw_at(pipeline.config().hybrid.backends.where, ErrorKind::input,
                     "a session whose backends store keys and values in different types cannot be "
                     "saved in this version; remove kv from 'hybrid.backends'");
    }
    PolicyState::check_savable(pipeline.policy_setup().config().policy);
}

void check_replaceable(const std::filesystem::path &path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return; // NewFile reports other problems
    std::array<char, magic.size()> begin{};
    std::ifstream file(path, std::ios::binary);
    if (file.read(begin.data(), begin.size()) && begin == magic) return;
    throw_error(ErrorKind::input,
                "{}: the file exists and is not a saved session, so it is not replaced; give "
                "another name, or remove the file",
                printable(path.string(), 400));
}

void save_session(Session &session, const std::filesystem::path &path,
                  const SessionExtras &extras) {
    check_policy(session);
    check_savable(session.pipeline());
    check_replaceable(path);
    NewFile file(path);
    FileWriter out(file);
    out.write(magic.data(), magic.size());
    out.put(version);
    const Facts facts = facts_of(session.pipeline());
    out.put(static_cast<uint32_t>(facts.size()));
    for (const auto &[name, value] : facts) {
        out.put_text(name);
        out.put_text(value);
    }
    write_extras(out, extras);
    session.save_state(out);
    out.finish();
}

SessionExtras load_session(Session &session, const std::filesystem::path &path,
                           const std::function<void(const SessionExtras &)> &check) {
    check_policy(session);
    const MappedFile file(path);
    const auto bytes = file.bytes();
    StateReader head(bytes, printable(path.string(), 400));
    if (bytes.size() < magic.size() || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
        head.fail("the file is not a saved session; 'keel run --save-session FILE' and '/save "
                  "FILE' of 'keel chat' write sessions");
    head.take(magic.size(), "the beginning");
    const auto found = head.get<uint32_t>("the version");
    if (found != version)
        head.fail("the session has version {}, but this Keel reads version {}; save the session "
                  "again with this Keel",
                  found, version);
    uint64_t sum = 0;
    if (head.left() < sizeof sum)
        head.fail(
            "the session is cut short: the file ends within the checksum; save the session again");
    const auto content = bytes.first(bytes.size() - sizeof sum);
    std::memcpy(&sum, bytes.data() + content.size(), sizeof sum);
    Checksum checksum;
    checksum.add(content.data(), content.size());
    if (checksum.value() != sum)
        head.fail("the session is damaged or cut short: the checksum does not match the content; "
                  "save the session again");

    StateReader in(content.subspan(magic.size() + sizeof version), head.name());
    check_facts(in, session.pipeline());
    SessionExtras extras = read_extras(in);
    if (check) check(extras);
    session.load_state(in);
    if (in.left() != 0) {
        session.reset();
        in.fail("expected the end of the session, found {} more bytes; the file is "
                "damaged",
                in.left());
    }
    return extras;
}

} // namespace keel
