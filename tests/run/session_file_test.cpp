// Tests of saved sessions. After a load, a session must give the same results as without saving.
// Files that do not fit or are damaged must be refused.
#include "base/error.hpp"
#include "run/session_file.hpp"
#include "run/session_rig.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

using namespace keel;
using namespace keel::test;

namespace {

std::string bytes_of(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the file with a new checksum after its content was changed, so that the checks after the
// checksum are tested.
std::string with_checksum(std::string file) {
    uint64_t sum = 0x6B65656Cu;
    const auto mix = [&](uint64_t word) {
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 32;
    };
    const size_t content = file.size() - 8;
    for (size_t i = 0; i + 8 <= content; i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, file.data() + i, 8);
        mix(word);
    }
    uint64_t last = 0;
    for (size_t i = content / 8 * 8; i < content; ++i)
        last |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * (i % 8));
    mix(last);
    mix(content % 8);
    std::memcpy(file.data() + content, &sum, 8);
    return file;
}

// Returns the message of the error, or "" if there is none.
template <typename Action> std::string file_refusal_of(Action &&action) {
    try {
        action();
    } catch (const Error &error) {
        CHECK(std::string(error.what()).find('\n') == std::string::npos);
        return error.what();
    }
    return {};
}

} // namespace

TEST_CASE("a loaded session continues as if it had never been saved") {
    const test::TempFolder folder;
    for (const Sets &sets :
         {tiny(), tiny({"kv.dtype=q8_0"}), tiny({"kv.key_dtype=f32", "kv.value_dtype=q4_0"}),
          tiny({"sampling.temperature=0.9", "sampling.seed=3"}),
          tiny({"sampling.temperature=0.9", "sampling.repetition_penalty=1.2",
                "backend.plugin=reference"}),
          tiny({"policy.plugin=sliding_window", "policy.budget.tokens=24",
                "policy.protect.prefix=4"}),
          tiny({"policy.plugin=sliding_window", "policy.budget.tokens=24",
                "policy.protect.prefix=4", "policy.positions=rerotated",
                "sampling.temperature=0.7"}),
          tiny({"policy.plugin=sliding_window", "policy.budget.tokens=24",
                "policy.positions=rerotated", "policy.trigger={on: [every_n], every_n: 5}",
                "kv.dtype=f32"})}) {
        INFO(sets.back());
        const bool slow = sets.back() == "backend.plugin=reference";
        Pipeline pipeline(pipeline::config_from_overrides(sets));
        const auto prompt = pipeline.tokenizer()->encode(opening);
        const int64_t first = slow ? 4 : 30, second = slow ? 4 : 30;
        Session whole(pipeline);
        const GenerateResult all = generate(whole, prompt, options_of(pipeline, first + second));

        Session begun(pipeline);
        const GenerateResult half = generate(begun, prompt, options_of(pipeline, first));
        REQUIRE(begun.pending() == half.ids.back());
        save_session(begun, folder / "s", {half.random, {{"who", "a test"}}});
        const auto go_on = [&](Session &session, const SessionExtras &extras) {
            GenerateOptions options = options_of(pipeline, second);
            options.random = extras.random;
            std::vector<int32_t> ids = half.ids;
            const auto more = generate(session, {}, options).ids;
            ids.insert(ids.end(), more.begin(), more.end());
            return ids;
        };
        CHECK(go_on(begun, {half.random, {}}) == all.ids); // saving changes nothing

        Pipeline other(pipeline::config_from_overrides(sets));
        Session loaded(other);
        loaded.prefill(prompt); // loading replaces this content
        const SessionExtras extras = load_session(loaded, folder / "s");
        CHECK(extras.notes.at("who") == "a test");
        CHECK(loaded.pending() == half.ids.back());
        CHECK(go_on(loaded, extras) == all.ids);
        CHECK(loaded.stats().evictions == whole.stats().evictions);
        CHECK(std::equal(loaded.history().begin(), loaded.history().end(), whole.history().begin(),
                         whole.history().end()));
        CHECK(loaded.stats().prefill_tokens == 0);
        // The loaded session is saved and loaded once more.
        save_session(loaded, folder / "t", {});
        CHECK_FALSE(load_session(begun, folder / "t").random);
        CHECK(begun.tokens() == loaded.tokens());
    }
}

TEST_CASE("a loaded session accepts another prompt after its last token") {
    const test::TempFolder folder;
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    const auto prompt = pipeline.tokenizer()->encode(opening),
               more = pipeline.tokenizer()->encode(" said to the wolf", false);
    Session a(pipeline);
    generate(a, prompt, options_of(pipeline, 5));
    save_session(a, folder / "s");
    const auto expected = generate(a, more, options_of(pipeline, 5)).ids;
    Session b(pipeline);
    load_session(b, folder / "s");
    CHECK(generate(b, more, options_of(pipeline, 5)).ids == expected);
    CHECK(b.stats().prefill_tokens == more.size() + 1);
    b.reset();
    CHECK_FALSE(b.pending());
    // After a reset, nothing of the saved text is left: an empty prompt begins a new text.
    Session c(pipeline);
    const int32_t first = pipeline.tokenizer()->bos_id().value();
    CHECK(generate(b, {}, options_of(pipeline, 5)).ids ==
          generate(c, {&first, 1}, options_of(pipeline, 5)).ids);
}

TEST_CASE(
    "a session of another model, type or policy is refused with the reason, and nothing changes") {
    const test::TempFolder folder;
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    Session session(pipeline);
    generate(session, pipeline.tokenizer()->encode(opening), options_of(pipeline, 5));
    save_session(session, folder / "s");
    const auto refusal = [&](std::initializer_list<std::string> sets) {
        Pipeline other(pipeline::config_from_overrides(tiny(sets)));
        Session b(other);
        b.prefill(std::vector<int32_t>{1, 2, 3});
        std::string text = file_refusal_of([&] { load_session(b, folder / "s"); });
        CHECK(b.tokens() == 3);
        return text;
    };
    CHECK_THAT(
        refusal({"kv.dtype=q8_0"}),
        Catch::Contains("the session was saved with kv.key_dtype f16, but this pipeline has q8_0"));
    CHECK_THAT(refusal({"kv.value_dtype=f32"}), Catch::Contains("kv.value_dtype"));
    CHECK_THAT(refusal({"model.weights=q8_0"}), Catch::Contains("weights of type"));
    CHECK_THAT(refusal({"policy.plugin=sliding_window", "policy.budget.tokens=64"}),
               Catch::Contains("policy.plugin"));
    CHECK_THAT(file_refusal_of([&] { load_session(session, folder / "none"); }),
               Catch::Contains("none"));
    CHECK(session.tokens() > 0);

    Pipeline small(pipeline::config_from_overrides(tiny({"model.context=8"})));
    Session c(small);
    CHECK_THAT(file_refusal_of([&] { load_session(c, folder / "s"); }),
               Catch::Contains("model.context = 8"));
    CHECK(c.tokens() == 0);
}

TEST_CASE("other weights of the same shape count as another model") {
    const test::TempFolder folder;
    for (const char *name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"})
        std::filesystem::copy_file(std::string(KEEL_SOURCE_DIR) + "/models/tiny/" + name,
                                   folder / name);
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    Session session(pipeline);
    session.prefill(std::vector<int32_t>{1, 2, 3});
    save_session(session, folder / "s");
    const auto load = [&] {
        Pipeline copy(
            pipeline::config_from_overrides(tiny({"model.path=" + folder.path().string()})));
        Session b(copy);
        return file_refusal_of([&] { load_session(b, folder / "s"); });
    };
    CHECK(load().empty()); // the same model in another folder
    std::fstream file(folder / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const int last = bytes_of(folder / "model.safetensors").back();
    file.put(static_cast<char>(last ^ 1));
    file.flush();
    CHECK_THAT(load(), Catch::Contains("weights with fingerprint"));
}

TEST_CASE("the same weights with another config count as another model, and the error names the "
          "difference") {
    const test::TempFolder folder;
    for (const char *name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"})
        std::filesystem::copy_file(std::string(KEEL_SOURCE_DIR) + "/models/tiny/" + name,
                                   folder / name);
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    Session session(pipeline);
    session.prefill(std::vector<int32_t>{1, 2, 3});
    save_session(session, folder / "s");
    const std::string config = bytes_of(folder / "config.json"),
                      tokenizer = bytes_of(folder / "tokenizer.json");
    const auto load = [&] {
        Pipeline copy(
            pipeline::config_from_overrides(tiny({"model.path=" + folder.path().string()})));
        Session b(copy);
        return file_refusal_of([&] { load_session(b, folder / "s"); });
    };
    const auto with = [&](const char *key, const nlohmann::json &value) {
        auto changed = nlohmann::json::parse(config);
        changed[key] = value;
        folder.write("config.json", changed.dump());
        return load();
    };
    CHECK_THAT(with("rms_norm_eps", 0.25), Catch::Contains("saved with norms eps"));
    CHECK_THAT(with("rope_theta", 5000.0), Catch::Contains("RoPE theta"));
    CHECK_THAT(with("max_position_embeddings", 77), Catch::Contains("trained to 77"));
    CHECK_THAT(with("rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}),
               Catch::Contains("RoPE"));
    folder.write("config.json", config);
    auto other = nlohmann::json::parse(tokenizer);
    auto &vocabulary =
        other["model"]["vocab"]; // the last token, which the last merge makes, gets another name
    auto &merges = other["model"]["merges"];
    std::string last = merges.back();
    last.erase(last.find(' '), 1);
    REQUIRE(vocabulary.contains(last));
    vocabulary["zqzq"] = vocabulary[last];
    vocabulary.erase(last);
    merges.erase(merges.size() - 1);
    folder.write("tokenizer.json", other.dump());
    CHECK_THAT(load(), Catch::Contains("saved with tokenizer"));

    const auto evicting = [&](const char *seed) {
        return tiny({"policy.plugin=sliding_window", "policy.budget.tokens=24", seed});
    };
    Pipeline one(pipeline::config_from_overrides(evicting("policy.seed=1"))),
        two(pipeline::config_from_overrides(evicting("policy.seed=2")));
    Session a(one), b(two);
    save_session(a, folder / "seeded");
    CHECK_THAT(file_refusal_of([&] { load_session(b, folder / "seeded"); }),
               Catch::Contains("policy.seed"));
}

TEST_CASE("numbers that are not finite in a loaded session are reported with its file") {
    const test::TempFolder folder;
    Pipeline pipeline(pipeline::config_from_overrides(tiny({"kv.dtype=f32"})));
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(opening));
    save_session(session, folder / "s");
    std::string file = bytes_of(folder / "s");
    std::memset(file.data() + file.size() / 2, 0xFF,
                32); // an offset among keys and values: bytes that are NaN wherever floats begin
    folder.write("bad.session", with_checksum(file));
    load_session(session, folder / "bad.session");
    CHECK_THAT(file_refusal_of([&] {
                   session.decode(5);
                   session.greedy();
               }),
               Catch::Contains("bad.session") && Catch::Contains("not finite"));
}

TEST_CASE("broken session files are refused without a crash") {
    const test::TempFolder folder;
    for (const Sets &sets :
         {tiny(), tiny({"policy.plugin=sliding_window", "policy.budget.tokens=12",
                        "policy.protect.prefix=4", "policy.positions=rerotated"})}) {
        Pipeline pipeline(pipeline::config_from_overrides(sets));
        Session session(pipeline);
        const auto half =
            generate(session, pipeline.tokenizer()->encode(opening), options_of(pipeline, 12));
        save_session(session, folder / "s", {half.random, {}});
        const std::string good = bytes_of(folder / "s");
        REQUIRE(with_checksum(good) == good);
        const auto load = [&](const std::string &content) {
            folder.write("broken", content);
            return file_refusal_of([&] { load_session(session, folder / "broken"); });
        };
        CHECK_THAT(load(""), Catch::Contains("not a saved session"));
        CHECK_THAT(load("keel session"), Catch::Contains("not a saved session"));
        CHECK_THAT(load(good.substr(0, 18)), Catch::Contains("ends within the version"));
        CHECK_THAT(load(good.substr(0, 22)), Catch::Contains("checksum"));
        CHECK_THAT(load(good.substr(0, good.size() / 2)), Catch::Contains("damaged"));
        std::string turned = good;
        turned[good.size() / 2] ^= 0x10;
        CHECK_THAT(load(turned), Catch::Contains("damaged"));
        turned = good;
        turned[16] = 9;
        CHECK_THAT(load(turned), Catch::Contains("version 9"));
        CHECK(load(good).empty());
        CHECK_THAT(load(with_checksum(good + "12345678")),
                   Catch::Contains("expected the end of the session, found 8 more bytes"));

        // With a correct checksum: the file is cut at any place, and bytes in its tables are
        // changed.
        std::mt19937 random(7);
        size_t refused = 0;
        for (int i = 0; i < 150; ++i) {
            const size_t cut = 28 + random() % (good.size() - 28);
            refused += load(with_checksum(good.substr(0, cut))).empty() ? 0 : 1;
        }
        CHECK(refused == 150);
        for (int i = 0; i < 300; ++i) {
            std::string other = good;
            const size_t at = 20 + random() % (i % 2 == 0 ? 800 : good.size() - 28);
            other[at] = static_cast<char>(random());
            if (i % 3 == 0) std::memset(other.data() + at / 8 * 8, i % 2 == 0 ? 0xFF : 0x7F, 8);
            // a value that is unusual but possible may be accepted
            const std::string text = load(with_checksum(other));
            CHECK_THAT(text, !Catch::Contains("internal"));
            if (text.empty() && session.tokens() > 0 && session.can_take(1)) {
                try {
                    session.decode(5);
                    session.greedy();
                } catch (const Error &) {
                }
            }
        }
        load_session(session, folder / "s");
    }
}

TEST_CASE("a session file is written completely or not at all") {
    const test::TempFolder folder;
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    Session session(pipeline);
    session.prefill(std::vector<int32_t>{1, 2, 3});
    CHECK_THAT(file_refusal_of([&] { save_session(session, folder / "no/such/folder"); }),
               Catch::Contains("cannot be written"));
    CHECK_THAT(file_refusal_of([&] { save_session(session, folder.path()); }),
               Catch::Contains("is not a regular file"));
    CHECK_THAT(file_refusal_of([&] { save_session(session, "/dev/null"); }),
               Catch::Contains("is not a regular file"));
    CHECK(std::filesystem::is_empty(folder.path()));
    save_session(session, folder / "s");
    save_session(session, folder / "s"); // replaces an older file
    folder.write("other", "not a session, and longer than the mark");
    CHECK_THAT(file_refusal_of([&] { save_session(session, folder / "other"); }),
               Catch::Contains("is not a saved session") && Catch::Contains("another name"));
    CHECK(bytes_of(folder / "other").starts_with("not a session"));
    std::filesystem::remove(folder / "other");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    CHECK((std::filesystem::status(folder / "s").permissions() &
           std::filesystem::perms::others_all) == std::filesystem::perms::none);
}
