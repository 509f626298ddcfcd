#!/usr/bin/env python3
"""Makes the tokenizer's golden files with Hugging Face tokenizers (pip install tokenizers; made with 0.23.3).

    make_tokenizer_golden.py                 writes tiny.txt and variants.json beside this script
    make_tokenizer_golden.py --vocab FOLDER  writes FOLDER/vectors.jsonl for the tokenizer.json in it, to be run
                                             with KEEL_TEST_VOCABS=PARENT_OF_FOLDER

tiny.txt has one line per text: the text as a JSON string, a tab, and the ids (no special tokens added) as two
characters of base64's alphabet each, high six bits first; models/tiny has 4096 tokens, which fits exactly.
The texts are written here by hand or drawn from these with a fixed seed; nothing is copied from elsewhere.
"""
import argparse
import copy
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

PROSE = """Once upon a time there was a miller's daughter who couldn't spin straw into gold, but she'd promised she would.
"Who's there?" cried the wolf. "It's I; I've come, they're late, we'll wait, you'd better, I'm cold!"
IT'S SHE'LL WE'VE THEY'RE I'D I'M DON'T: SHOUTED CONTRACTIONS, and O'Brien's, and rock 'n' roll, 'tis, ’tis.
The king had 3 sons, 12 castles, 1,024 sheep and 3.14159 pies; he was born on 1812-12-20 at 07:45:59.
Mr. Fox (of No. 10) paid £5.50, $12, €7,99 or ¥1000 -- no more, no less -- for 1/2 a goose @ 50%.
A line ends here.\r\nThe next has\ttabs\t\tand\u00a0no-break\u00a0spaces.
   Three leading spaces, three trailing   
word      many      spaces       between, and a final tab\t
\n\n\nParagraphs\n\n   \n\n after   blank \n lines \r\r\n \v\f
x = y+z; a&&b||c; i++ --j; p->q; a::b; <T&>; #!/bin/sh; $HOME; ~/x_y-z.tar.gz; C:\\dir\\file.txt; a_b_c __init__
https://example.org/path?q=1&r=%20#frag user.name+tag@example.co.uk 192.168.0.1 ::1 v1.2.3-rc4 0xDEADBEEF 1e-9 1_000
!!! ??? ... ,,, ;;; ::: --- === *** ((())) [[[]]] {{{}}} <<<>>> ///\\\\\\ ``` ~~~ ^^^ '''\"\"\" ''
<|begin_of_text|><|end_of_text|> <| begin_of_text |> <|start|>"""

CODE = '''def fib(n: int) -> int:
    "Return the n-th number."
    return n if n < 2 else fib(n - 1) + fib(n - 2)  # slow
class Tree(object):\n\tdef __init__(self, *args, **kwargs):\n\t\tself.left = self.right = None
    print(f"{x!r:>10} {y:.3f}", end='\\n')
#include <vector>\n#define MAX(a, b) ((a) > (b) ? (a) : (b))
template <typename T> constexpr auto f(T &&t) noexcept -> decltype(t.size()) { return t.size() >> 1; }
int main(int argc, char **argv) { for (size_t i = 0; i < 10; ++i) printf("%zu\\n", i); return 0; }
fn main() { let v: Vec<u8> = b"bytes\\x00".to_vec(); println!("{:?}", v.iter().map(|x| x + 1).collect::<Vec<_>>()); }
func (s *Server) Serve(ctx context.Context) error { select { case <-ctx.Done(): return ctx.Err() } }
const f = async (x) => { await fetch(`/api/${x}?y=${encodeURIComponent("z")}`); }; // ünïcode
SELECT a.id, COUNT(*) FROM t AS a LEFT JOIN u ON a.id=u.id WHERE u.x IS NOT NULL GROUP BY 1 ORDER BY 2 DESC;
{"key": [1, 2.5, -3e+7, true, null, "\\u00e9"], "nested": {"a": {}}}
<div class="a b" style='color:#fff'>&nbsp;<br/></div><!-- note -->
for f in *.txt; do sed -e 's/a\\(b\\)c/\\1/g' "$f" | awk '{print $1}' >> out 2>&1; done
    mov     rax, [rbx+8*rcx-0x10]   ; load
\\begin{equation} \\frac{\\partial u}{\\partial t} = \\alpha \\nabla^2 u \\end{equation}
name: keel\n  - item: "a: b"\n    list: [x, y]  # comment
match x with | Some(y) when y > 0 -> y | _ -> failwith "no"
(define (sq x) (* x x))  (let ((y 2)) (sq y))'''

WORLD = """昔々あるところに、おじいさんとおばあさんがいました。山へ芝刈りに、川へ洗濯に。カタカナ、ｶﾀｶﾅ、１２３！
从前有座山，山里有座庙，庙里有个老和尚在讲故事。她说：“你好！”一二三四五，２０２６年１１月。繁體中文與简体。
옛날 옛적에 호랑이가 살았습니다. 한국어 문장, ㄱㄴㄷ, 조합: 한글 (NFD).
Жил-был у бабушки серенький козлик. Ёлка, щи, объезд, Україна їжак ґанок, №5.
Μια φορά κι έναν καιρό ήταν μια αλεπού· ἀρχὴ σοφίας, τέλος ς.
היה היה מלך אחד, שָׁלוֹם עולם! כתב מימין לשמאל 123 abc.
كان يا ما كان في قديم الزمان، مَلِكٌ عَظِيمٌ؟ ١٢٣٤ پارسی ‌نیم‌فاصله.
एक समय की बात है, क्षत्रिय राजा था। हिन्दी १२३ ज़रूर।
ஒரு ஊரில் ஒரு ராஜா இருந்தார். తెలుగు ಕನ್ನಡ മലയാളം বাংলা ગુજરાતી ਪੰਜਾਬੀ සිංහල
กาลครั้งหนึ่งนานมาแล้ว น้ำใจ ๑๒๓ ລາວ ខ្មែរ မြန်မာ བོད་
Es war einmal ein süßer Käse, Straße, ÄÖÜ, GROẞ; il était une fois où l'œuvre naïve; ¿Qué? ¡Olé! ñandú; çığ İIıi; žluťoučký kůň; Łódź; þæð; ŉ; ĳ; Ǆ ǅ ǆ
Việt Nam: tiếng Việt có dấu; é à ñ combining: é à ñ ö̲ z̷̢a̵l̶g̴o̸; Å vs Å vs Å
ᚠᚢᚦ ᏣᎳᎩ ⴰⵎⴰⵣⵉⵖ ꦗꦮ 𐎠𐎡 𓀀𓁐 𝔘𝔫𝔦 𝟙𝟚𝟛 𝒳 ℵ₀ ∑∫√∞≠≤ ½ ¼ ⅷ Ⅻ ① ⒜ ² ₃ ㊀ ፩ ᠑ ꠰"""

EMOJI = ["😀", "👍🏽", "👩🏻‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇯🇵", "❤️", "☺︎", "1️⃣", "🧑🏿‍🚀", "🐈‍⬛", "🫠", "👁️‍🗨️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "✊🏾", "©®™"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\t\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085",
          "\u180e", "\u200b", "\u202f", "\ufeff", "\v", "\f", "\r", "        ", " \t ", "\u1680", "\u205f", "\x1c", "\x00", "\x7f"]
ODD = ["'s", "'S", "'ſ", "'T", "'ll", "'LL", "'lL", "'re", "'d", "'x", "''s", "’s", "\u017f", "\u212a", "\ufffd", "\u0301", "a\u0301", "\u0300\u0301",
       "\u200d", "\ufe0f", "\U0010ffff", "\ue000", "ﬁ", "ß", "ẞ", "İ", "ı", "Ⅷ", "½", "٣", "९", "𝟘", "º", "ª", "_", "__", "-", "$", "+1", "#1", "'"]


def texts(count):
    rng = random.Random(20261121)
    lines = []
    for block in (PROSE, CODE, WORLD):
        lines += block.split("\n") + [block]
    lines += EMOJI + SPACES + ODD + ["", "a", "é", "日"]
    words = [w for block in (PROSE, CODE, WORLD) for w in block.split(" ") if w]
    prose = PROSE.split() * 3 + CODE.split() + WORLD.split()
    while len(lines) < count:
        kind = rng.randrange(6)
        if kind == 0:  # a slice of what stands above, cut anywhere
            block = rng.choice((PROSE, CODE, WORLD))
            at = rng.randrange(len(block))
            text = block[at:at + rng.randrange(1, 45)]
        elif kind == 1:  # words and unusual spaces
            text = "".join(rng.choice(prose) + rng.choice(SPACES) for _ in range(rng.randrange(1, 6)))
        elif kind == 2:  # digits and punctuation
            text = "".join(rng.choice("0123456789 .,:-+'\"()eE\n") for _ in range(rng.randrange(1, 25)))
        elif kind == 3:  # emoji among words
            text = "".join(rng.choice([rng.choice(EMOJI), rng.choice(words), " "]) for _ in range(rng.randrange(1, 5)))
        elif kind == 4:  # all unusual characters at once
            text = "".join(rng.choice(rng.choice([ODD, SPACES, EMOJI, ["a", "B", "é", "日", "7", "."]])) for _ in range(rng.randrange(1, 9)))
        else:  # any code points of the lower planes, assigned or not
            text = "".join(chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x80, 0x250)]))
                           for _ in range(rng.randrange(1, 10)))
        lines.append(text)
    return list(dict.fromkeys(lines))


def write_tiny():
    tokenizer = Tokenizer.from_file(str(ROOT / "models/tiny/tokenizer.json"))
    with open(HERE / "tiny.txt", "w", encoding="utf-8", newline="\n") as out:
        for text in texts(3200):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            packed = "".join(BASE64[i >> 6] + BASE64[i & 63] for i in ids)
            out.write(f"{json.dumps(text, ensure_ascii=False)}\t{packed}\n")


def symbols():
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = [], 0
    for b in range(256):
        table.append(chr(b if b in kept else 256 + extra))
        extra += b not in kept
    return table


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def base():
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ t", "Ġt he", "i n", "in g", "o r", "Ġ w", "Ġw or", "l d", "1 2", "12 3",
              "e r", "Ġ Ġ", "ĠĠ ĠĠ", "a b", "b c", "ab c", "a bc", "å ±", "Ċ Ċ", "' s", "Ã ©", "t he", "a a", "aa aa"]
    vocab = {s: i for i, s in enumerate(symbols())}
    for m in merges:
        vocab.setdefault(m.replace(" ", ""), len(vocab))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}


# added tokens get the next numbers; Hugging Face uses these numbers whatever the file says
N = len(base()["model"]["vocab"])


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False} | flags


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, last]}}


def template(before, after):
    def special(t):
        return {"SpecialToken": {"id": t, "type_id": 0}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [*map(special, before), a, *map(special, after)],
            "pair": [*map(special, before), a, b, *map(special, after)],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [N], "tokens": ["<s>"]},
                               "</s>": {"id": "</s>", "ids": [N + 1], "tokens": ["</s>"]},
                               "<2>": {"id": "<2>", "ids": [N, N + 1], "tokens": ["<s>", "</s>"]}}}


WORDS = ["hello world", " hello  the world", "hello123 abc, 12345!", "abcabc ab bc aaaaaaa", "I'm the miller's, don't'S",
         "hello\n\nthe\r\n  world  ", "日本 héllo", "", " ", "Hello HELLO heLLo ElloWorld's HELLOworld", "a--b - c", "x\u0085y\u180ez\u00a0w"]
MARKED = ["hello <a> world", "  <a>  <a><a>", "<a>", "x<a>y", "x <a> y", "é<a>é", " \n<a>\t\n x", "<a><b><a>b>", "<ab> <a", "<a>\u200d", "_<a>_",
          "1<a>", "<b>hello<b> the", "the<a>  <b>  the", "\u3000<a>\u00a0", "hello", "-<a>.", "😀<a>😀", "<A>", "ʰ<a>", "\u0301<a>", "Ⓐ<a>"]


def variants():
    bytelevel = base()["pre_tokenizer"]
    marks = [added(N, "<s>", special=True), added(N + 1, "</s>", special=True)]
    out = [("gpt2", {}, WORDS),
           ("prefix space", {"pre_tokenizer": bytelevel | {"add_prefix_space": True}}, WORDS),
           ("prefix space, no regex", {"pre_tokenizer": bytelevel | {"add_prefix_space": True, "use_regex": False}}, WORDS),
           ("no regex", {"pre_tokenizer": bytelevel | {"use_regex": False}}, WORDS),
           ("merges as pairs", {"model": {"merges": [m.split(" ") for m in base()["model"]["merges"]]}}, WORDS),
           ("ignore_merges", {"model": {"ignore_merges": True, "merges": base()["model"]["merges"][:2]}}, WORDS),
           ("a pair ruled twice", {"model": {"merges": ["a b", "b c", "ab c", "a bc", "a b", "h e"]}}, WORDS),
           ("llama 3", sequence(split(LLAMA3, "Isolated")), WORDS),
           ("gpt-4o", sequence(split(GPT4O, "Isolated")), WORDS),
           ("digits alone", sequence({"type": "Digits", "individual_digits": True}, split(LLAMA3, "Isolated")), WORDS),
           ("digits together", sequence({"type": "Digits", "individual_digits": False}), WORDS + ["12 345 6", "①½x१२"]),
           ("prefix space after split", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
               split(" ", "MergedWithNext", kind="String"), bytelevel | {"add_prefix_space": True}]}}, WORDS)]
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            out.append((f"split {behavior} invert={invert}", sequence(split(r"\s|-", behavior, invert)), WORDS))
        out.append((f"split at text {behavior}", sequence(split("l", behavior, kind="String")), WORDS))
    for pattern in (r"\b", r"(?=l)", r"\s*", r"(?<=l)o|^h", r"o$|\d+", r"[\s\S]", r"[^\S\n]+", r"\w+", r"\W+", r"(?i)HELLO|wOrld", r"l{,2}o",
                    r"(?:a|b)++", r"\x{65e5}|\u672c|é", r"[]a]", r"\Bl", r"\D+"):
        out.append((f"pattern {pattern}", sequence(split(pattern, "Isolated")), WORDS))
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True},
                  {"single_word": True, "normalized": True, "lstrip": True}, {"special": True, "rstrip": True}):
        tokens = [added(N, "<a>", **flags), added(N + 1, "<b>", special=True), added(N + 2, "<ab>"), added(base()["model"]["vocab"]["the"], "the", normalized=True)]
        out.append((f"added {flags}", {"added_tokens": [*tokens]}, MARKED))
    out += [("added: spaces and prefixes", {"added_tokens": [added(N, "  "), added(N + 1, "    "), added(base()["model"]["vocab"]["hello"], "hello"), added(N + 2, "hel", rstrip=True),
                                                             added(N + 3, " w", lstrip=True)]}, WORDS + ["   hello", "hel    hello", "hel  w", "     w"]),
            ("added: in the vocabulary", {"added_tokens": [added(base()["model"]["vocab"]["hello"], "hello", special=True)]}, WORDS),
            ("added: with prefix space", {"added_tokens": [added(N, "<a>", lstrip=True)],
                                          "pre_tokenizer": bytelevel | {"add_prefix_space": True}}, MARKED)]
    for name, post in (("bos", template(["<s>"], [])), ("bos and eos", template(["<s>"], ["</s>"])), ("two ids", template(["<2>"], ["</s>"])),
                       ("bytelevel", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}),
                       ("sequence", {"type": "Sequence", "processors": [bytelevel, template(["<s>"], []), template(["</s>"], ["<s>"])]})):
        out.append((f"post-processor {name}", {"added_tokens": marks, "post_processor": post}, ["hello", "", "<s>hello"]))
    lacking = {k: v for k, v in base()["model"]["vocab"].items() if k not in ("z", "y", "Ġ")}
    merges = [m for m in base()["model"]["merges"] if "Ġ" not in m]
    lacking = {k: v for k, v in lacking.items() if "Ġ" not in k}
    for name, extra in (("dropped", {}), ("unknown", {"unk_token": "ing"}), ("unknown fused", {"unk_token": "ing", "fuse_unk": True})):
        out.append((f"missing bytes {name}", {"model": {"vocab": lacking, "merges": merges} | extra}, ["hello world", "xyz zzz hello", "y", "yzhezyll"]))
    return out


def merged(target, patch):
    """Returns the target with the patch applied, member by member. "vocab" is replaced as a whole."""
    out = copy.deepcopy(target)
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict) and key == "model":
            out[key] = out[key] | value
        else:
            out[key] = value
    return out


def write_variants():
    doc = {"base": base(), "variants": []}
    for name, patch, cases in variants():
        tokenizer = Tokenizer.from_str(json.dumps(merged(base(), patch)))
        rows = []
        for text in cases:
            with_special, plain = tokenizer.encode(text).ids, tokenizer.encode(text, add_special_tokens=False).ids
            rows.append([text, plain] + ([with_special] if with_special != plain else []))
        doc["variants"].append({"name": name, "patch": patch, "cases": rows})
    text = json.dumps(doc, ensure_ascii=False, separators=(",", ":"))
    text = text.replace('{"name":', '\n{"name":')
    (HERE / "variants.json").write_text(text + "\n", encoding="utf-8")


def write_vectors(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with open(folder / "vectors.jsonl", "w", encoding="utf-8", newline="\n") as out:
        for text in texts(6000):
            row = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                   "with_special": tokenizer.encode(text).ids}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=pathlib.Path, help="folder with a tokenizer.json; writes vectors.jsonl into it")
    folder = parser.parse_args().vocab
    if folder:
        write_vectors(folder)
    else:
        write_tiny()
        write_variants()
