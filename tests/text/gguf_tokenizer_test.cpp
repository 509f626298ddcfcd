// Tests of byte-level vocabularies in GGUF files. spm_test.cpp tests SentencePiece vocabularies.
#include "base/error.hpp"
#include "format/gguf_writer.hpp"
#include "support/temp_folder.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer/gguf_pre_tokenizers.hpp"
#include "text/tokenizer/normalizer.hpp"
#include "text/tokenizer/pre_tokenizer.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <utility>

using Catch::Matchers::Contains;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

const std::string source_root = KEEL_SOURCE_DIR;

// The vocabulary of models/tiny, which tests write and damage.
struct Vocab {
    std::string architecture = "llama";
    std::string model = "gpt2";
    std::string pre = "qwen2"; // the same pattern as qwen2
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    std::vector<std::string> merges;
    std::uint32_t bos = 4094;
    bool add_bos = true;
    std::string chat_template;
};

Vocab tiny_vocab() {
    std::ifstream in(source_root + "/models/tiny/tokenizer.json");
    const Json tree = Json::parse(in);
    Vocab out;
    out.tokens.resize(4096);
    out.types.assign(4096, 1);
    for (const auto &[text, id] : tree["model"]["vocab"].items())
        out.tokens[id.get<std::size_t>()] = text;
    for (const Json &token : tree["added_tokens"]) {
        out.tokens[token["id"].get<std::size_t>()] = token["content"];
        out.types[token["id"].get<std::size_t>()] = 3;
    }
    for (const Json &merge : tree["model"]["merges"])
        out.merges.push_back(merge.is_string()
                                 ? merge.get<std::string>()
                                 : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    return out;
}

std::filesystem::path write(const Vocab &vocab) {
    // this process has its own folder, because test cases run at the same time
    static const keel::test::TempFolder folder;
    const auto path = folder / "vocabulary.gguf";
    keel::GgufWriter out(path);
    out.add("general.architecture", std::string_view(vocab.architecture));
    out.add("tokenizer.ggml.model", std::string_view(vocab.model));
    if (!vocab.pre.empty()) out.add("tokenizer.ggml.pre", std::string_view(vocab.pre));
    out.add("tokenizer.ggml.tokens", vocab.tokens);
    out.add("tokenizer.ggml.token_type", vocab.types);
    if (!vocab.merges.empty()) out.add("tokenizer.ggml.merges", vocab.merges);
    out.add("tokenizer.ggml.bos_token_id", vocab.bos);
    out.add("tokenizer.ggml.eos_token_id", std::uint32_t{4095});
    out.add("tokenizer.ggml.add_bos_token", vocab.add_bos);
    if (!vocab.chat_template.empty())
        out.add("tokenizer.chat_template", std::string_view(vocab.chat_template));
    out.begin();
    out.finish();
    return path;
}

std::unique_ptr<keel::Tokenizer> load(const Vocab &vocab) {
    return keel::load_tokenizer(write(vocab));
}

std::string refusal(const Vocab &vocab) {
    try {
        (void)load(vocab);
    } catch (const keel::Error &error) {
        CHECK(error.kind() == keel::ErrorKind::input);
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("a byte-level vocabulary in a GGUF file gives the ids of its tokenizer.json") {
    const auto from_file = load(tiny_vocab());
    const auto from_folder = keel::load_tokenizer(source_root + "/models/tiny");
    std::ifstream lines(source_root + "/tests/text/golden/tiny.txt");
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        const auto text = Json::parse(line.substr(0, line.rfind('\t'))).get<std::string>();
        if (from_file->encode(text) != from_folder->encode(text)) {
            INFO(line);
            CHECK(from_file->encode(text) == from_folder->encode(text));
        }
    }
    CHECK(count >= 3000);
    CHECK(from_file->bos_id() == 4094);
    CHECK(from_file->end_ids() == Ids{4095});
    CHECK(from_file->kind(4095) == keel::TokenKind::special);
    CHECK(from_file->decode(from_file->encode("caf\u00E9 <|end_of_text|>")) == "caf\u00E9 ");
}

TEST_CASE("Qwen's files compose characters, and others with its pattern do not") {
    Vocab vocab = tiny_vocab();
    const std::string apart = "cafe\u0301";
    CHECK(load(vocab)->encode(apart) != load(vocab)->encode("caf\u00E9"));
    vocab.architecture = "qwen3";
    CHECK(load(vocab)->encode(apart) == load(vocab)->encode("caf\u00E9"));
}

TEST_CASE("the names of word patterns in GGUF files mean the patterns of the models") {
    const auto cuts = [](std::string_view name, std::string_view text) {
        const auto pre = keel::find_gguf_pre_tokenizer(name);
        REQUIRE(pre);
        keel::PreTokenizer tokenizer;
        for (const std::string_view pattern : pre->patterns)
            tokenizer.add_split(
                keel::SplitRegex(pattern, keel::SplitRegex::Syntax::regex, std::string(name)),
                keel::SplitBehavior::isolated, false);
        tokenizer.set_byte_level(false, false);
        keel::RegexScratch scratch(text.size());
        std::string out;
        tokenizer.split(text, {}, scratch, [&](std::string_view word) { (out += word) += '|'; });
        return out;
    };
    const std::string text = "It's 12345 okIDE  x\n\n!/";
    CHECK(cuts("gpt-2", text) == "It|'s| 12345| okIDE| | x|\n|\n|!/|");
    CHECK(cuts("llama-bpe", text) == "It|'s| |123|45| okIDE| | x|\n\n|!/|");
    CHECK(cuts("qwen2", text) == "It|'s| |1|2|3|4|5| okIDE| | x|\n\n|!/|");
    CHECK(cuts("smollm", text) == "It|'s| |1|2|3|4|5| okIDE| | x|\n|\n|!/|");
    CHECK(cuts("tekken", text) == "It|'s| |1|2|3|4|5| ok|IDE| | x|\n\n|!/|");
    CHECK(cuts("default", text) == "It|'|s| |123|45| okIDE| | x|\n\n|!/|");
    CHECK_FALSE(keel::find_gguf_pre_tokenizer("bloom"));
    for (const std::string_view name :
         {"gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "tekken"}) {
        const auto pre = keel::find_gguf_pre_tokenizer(name);
        REQUIRE(pre);
        CHECK(keel::name_gguf_pre_tokenizer(pre->patterns, pre->ignore_merges) == name);
    }
    CHECK_FALSE(keel::name_gguf_pre_tokenizer({"x"}, false));
    const auto qwen = keel::find_gguf_pre_tokenizer("qwen2");
    CHECK(keel::name_gguf_pre_tokenizer(qwen->patterns, false, true) == "qwen2");
    CHECK(keel::name_gguf_pre_tokenizer(qwen->patterns, false, false) == "deepseek-r1-qwen");
    const auto llama = keel::find_gguf_pre_tokenizer("llama-bpe");
    CHECK(keel::name_gguf_pre_tokenizer(llama->patterns, true, false) == "llama-bpe");
    CHECK_FALSE(keel::name_gguf_pre_tokenizer(llama->patterns, true, true));
    CHECK(keel::gguf_pre_tokenizer_names().starts_with("default, gpt-2, mpt, llama-bpe, "));
}

TEST_CASE("an unsupported vocabulary is refused with the key") {
    Vocab vocab = tiny_vocab();
    vocab.pre = "bloom";
    CHECK_THAT(refusal(vocab),
               Contains("tokenizer.ggml.pre") &&
                   Contains("'bloom' is not supported; Keel supports default, gpt-2"));
    vocab.pre.clear();
    CHECK(refusal(vocab) == "accepted"); // this counts as "default"
    vocab = tiny_vocab();
    vocab.model = "bert";
    CHECK_THAT(refusal(vocab),
               Contains("tokenizer.ggml.model") && Contains("the kind 'bert' is not supported"));
    vocab = tiny_vocab();
    vocab.merges[7] = "x";
    CHECK_THAT(refusal(vocab), Contains("tokenizer.ggml.merges") &&
                                   Contains("merge 7: expected \"a b\", found 'x'"));
    vocab.merges[7] = "q qqqq";
    CHECK_THAT(refusal(vocab),
               Contains("merge 7: 'q") && Contains("is not in tokenizer.ggml.tokens"));
    vocab.merges.clear();
    CHECK_THAT(refusal(vocab), Contains("tokenizer.ggml.merges") && Contains("is missing"));
    vocab = tiny_vocab();
    vocab.bos = 4096;
    CHECK_THAT(refusal(vocab), Contains("tokenizer.ggml.bos_token_id"));
    vocab.bos = UINT32_MAX; // no begin token
    CHECK_THAT(refusal(vocab), Contains("each text must begin with the token that this key names"));
    vocab.add_bos = false;
    CHECK_FALSE(load(vocab)->bos_id());
    CHECK(load(vocab)->eos_id() == 4095);
    vocab = tiny_vocab();
    vocab.tokens[5] = "\xFF";
    CHECK(refusal(vocab) != "accepted");
    vocab = tiny_vocab();
    vocab.types.pop_back();
    CHECK_THAT(refusal(vocab),
               Contains("tokenizer.ggml.token_type") && Contains("expected one number per token"));
    vocab = tiny_vocab();
    for (std::string &token : vocab.tokens) token += " ";
    CHECK_THAT(refusal(vocab), Contains("means byte-level BPE; found none"));
}

TEST_CASE("the chat template and the ends of turns are found in a GGUF file") {
    Vocab vocab = tiny_vocab();
    const std::string replaced = std::exchange(vocab.tokens[4093], "<|im_end|>");
    vocab.types[4093] = 3;
    std::erase_if(vocab.merges, [&](const std::string &merge) {
        std::string joined = merge;
        joined.erase(joined.find(' '), 1);
        return joined == replaced;
    });
    std::ifstream in(source_root + "/tests/text/golden/chat.json");
    vocab.chat_template = Json::parse(in)["templates"]["chatml"]["jinja"];
    const auto found = keel::load_chat_template(write(vocab));
    CHECK(found.jinja == vocab.chat_template);
    CHECK(found.name.ends_with(": tokenizer.chat_template"));
    const auto end = found.open().end_ids(*load(vocab));
    CHECK(std::find(end.begin(), end.end(), 4093) != end.end());
    CHECK(load(vocab)->end_ids() == Ids{4093, 4095});
}

TEST_CASE("composed text agrees with Unicode, also in long texts") {
    CHECK(keel::compose_unicode("cafe\u0301 \u1100\u1161\u11A8 \u212B \uFB01", false) ==
          "caf\u00E9 \uAC01 \u00C5 \uFB01");
    CHECK(keel::compose_unicode("\uFB01 \u2460", true) == "fi 1");
    std::string apart;
    std::string composed;
    for (int i = 0; i < 60'000; ++i) {
        apart += "e\u0301";
        composed += "\u00E9";
    }
    CHECK(keel::compose_unicode(apart, false) == composed);
    keel::TextNormalizer blow_up;
    for (int i = 0; i < 6; ++i) blow_up.add_replacement("a", std::string(60, 'a'));
    CHECK_THROWS_WITH(blow_up.apply("aaaa"), Contains("becomes too long"));
}
