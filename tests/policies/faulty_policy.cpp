// A policy whose state is the number of its calls. If told to, it breaks one rule, which the
// checker must find.
#include <keel/sdk_policy.hpp>

#include <atomic>

namespace {

using namespace keel::sdk;

constexpr const char *faults[] = {"none",    "nan",       "left_out",  "outside",
                                  "garbage", "different", "reset",     "forget",
                                  "list",    "silent",    "impatient", nullptr};

class Faulty {
  public:
    static constexpr PluginInfo info = {"faulty_policy", "1.0.0", "Tests", "MIT",
                                        "Breaks one promise."};
    static constexpr keel_param_spec params[] = {
        KEEL_CHOICE_PARAM("fault", "none", faults, "the promise that is broken")};

    Faulty(const Setup &setup, keel_policy_needs &needs) {
        for (const char *const *word = faults; *word != nullptr; ++word)
            if (setup.params.is("fault", *word)) fault_ = *word;
        needs.needs = KEEL_NEED_KEY_NORMS;
        needs.granularity = KEEL_KEEP_HEAD_EQUAL;
        needs.output = is("list") ? KEEL_OUTPUT_KEEP : KEEL_OUTPUT_SCORES;
        if (is("impatient")) needs.needs |= uint64_t{1} << 63;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        static std::atomic<int> calls{0};
        if (is("silent")) throw Failure(KEEL_E_INTERNAL, "");
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int32_t length = in.length(h);
            if (is("list")) {
                std::fill_n(out.keep(h), std::min(length, 2), 0);
                out.kept(h, std::min(length, 2));
                continue;
            }
            for (int32_t t = 0; t < length - (is("left_out") ? 1 : 0); ++t)
                out.scores(h)[t] = in.key_norms(h)[t] + static_cast<float>(asked_);
            if (length == 0) continue;
            if (is("nan")) out.scores(h)[length - 1] = std::nanf("");
            if (is("outside")) out.scores(h)[-1] = 0;
            if (is("garbage")) out.scores(h)[0] = in.key_norms(h)[length] > 0 ? 1.0f : 0.0f;
            if (is("different")) out.scores(h)[0] += static_cast<float>(++calls);
        }
        ++asked_;
    }
    void reset() { asked_ = is("reset") ? asked_ : 0; }
    void truncate(int64_t) {}
    std::vector<unsigned char> save() const {
        return std::vector<unsigned char>(4, is("forget") ? 0 : asked_);
    }
    void load(const unsigned char *data, size_t size) {
        if (size != 4) throw Failure(KEEL_E_INVALID_ARG, "a state of %zu bytes, expected 4", size);
        asked_ = data[0];
    }

  private:
    bool is(const char *fault) const { return keel_same(fault_, fault) != 0; }

    const char *fault_ = faults[0];
    unsigned char asked_ = 0;
};

} // namespace

KEEL_POLICY_PLUGIN(Faulty)
