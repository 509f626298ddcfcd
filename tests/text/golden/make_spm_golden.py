#!/usr/bin/env python3
"""Makes spm/: a small SentencePiece vocabulary, and the ids of SentencePiece and Hugging Face tokenizers for texts with it.

    make_spm_golden.py             writes spm/tokenizer.json, spm/variants.json and spm/vectors.txt
    make_spm_golden.py TALES.txt   trains spm/tokenizer.model first, on the first 6 MB of that text

Made with sentencepiece 0.2.3 and tokenizers 0.21.4 on the public-domain tales that models/tiny was trained on.

vectors.txt has one line per text, with fields separated by tabs: the text as a JSON string, then ids without special tokens, in the
form of tiny.txt, from
    SentencePiece; "-" if the text contains a control token, which this library does not recognize in texts,
    tokenizer.json without changes (a Prepend normalizer),
    each of variants.json, a patch of tokenizer.json.
"=" means the same as the field before. The last field is the text to which SentencePiece decodes its ids; "=" means the text itself.
"""
import copy
import json
import pathlib
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

from make_tokenizer_golden import BASE64, texts

OUT = pathlib.Path(__file__).resolve().parent / "spm"
MARK = "\u2581"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def train(tales):
    text = pathlib.Path(tales).read_bytes()[:6_000_000]
    sample = OUT / "sample.txt"
    sample.write_bytes(text)
    sentencepiece.SentencePieceTrainer.train(
        input=str(sample), model_prefix=str(OUT / "tokenizer"), model_type="bpe", vocab_size=1500, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, character_coverage=0.9995, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        num_threads=1, max_sentence_length=20000, user_defined_symbols=["<mark>", "[INST]"], input_sentence_size=40000,
        shuffle_input_sentence=False, minloglevel=2)
    sample.unlink()
    (OUT / "tokenizer.vocab").unlink()
    model = sentencepiece_model_pb2.ModelProto.FromString((OUT / "tokenizer.model").read_bytes())
    model.trainer_spec.input[:] = ["tales.txt"]
    model.trainer_spec.model_prefix = "tokenizer"
    (OUT / "tokenizer.model").write_bytes(model.SerializeToString())


def merges(pieces):
    """Returns every pair of pieces whose joined text is a piece, best score first, like transformers' converter."""
    ids = {p.piece: i for i, p in enumerate(pieces) if p.type == 1}
    found = []
    for p in pieces:
        if p.type == 1:
            cuts = [(p.piece[:k], p.piece[k:]) for k in range(1, len(p.piece))]
            pairs = [(a, b) for a, b in cuts if a in ids and b in ids]
            found += [(-p.score, ids[a], ids[b], a, b) for a, b in pairs]
    return [[a, b] for _, _, _, a, b in sorted(found)]


def added(id, content, special):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def tokenizer_json():
    proto = sentencepiece_model_pb2.ModelProto.FromString((OUT / "tokenizer.model").read_bytes())
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(0, "<unk>", True), added(1, "<s>", True), added(2, "</s>", True),
                         added(3, "<mark>", False), added(4, "[INST]", False)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, REPLACE]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {p.piece: i for i, p in enumerate(proto.pieces)}, "merges": merges(proto.pieces)}}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def variants():
    plain = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "metaspace, first": {"normalizer": None, "pre_tokenizer": metaspace("first", False)},
        "metaspace, always, split": {"normalizer": None, "pre_tokenizer": metaspace("always", True),
                                     "decoder": metaspace("always", True)},
        "gemma": {"normalizer": REPLACE, "decoder": {"type": "Sequence", "decoders": plain},
                  "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                    "invert": False}},
        "digits, then metaspace": {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, metaspace("first", True)]}},
        "no byte fallback": {"model": {"byte_fallback": False}},
        "unknown ones apart": {"model": {"byte_fallback": False, "fuse_unk": False, "ignore_merges": True}},
    }


def patched(base, patch):
    out = copy.deepcopy(base)
    for key, value in patch.items():
        out[key] = out[key] | value if key == "model" else value
    return out


def marked_texts():
    return ["<s>", "</s>", "<s>a</s>", "a <s> b</s>c", " </s> ", "<s><s>  x", "one<mark>two", "<mark>", " <mark> ", "a<mark>b<mark> c",
            "[INST] Hi [INST]there", "<s>[INST] Who? [/INST] I.</s><s>[INST]", "<unk>", "a<unk>b", "<0x41>", "a<0x0A>b", "\u2581", "a\u2581b",
            "\u2581\u2581 a", "<s", "</s></s>\n</s>", "<mark></s><mark>"]


def main():
    OUT.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        train(sys.argv[1])
    base = tokenizer_json()
    (OUT / "tokenizer.json").write_text(json.dumps(base, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    (OUT / "variants.json").write_text(json.dumps(variants(), ensure_ascii=False, indent=1), encoding="utf-8")
    readers = [Tokenizer.from_str(json.dumps(tree)) for tree in [base] + [patched(base, p) for p in variants().values()]]
    library = sentencepiece.SentencePieceProcessor(model_file=str(OUT / "tokenizer.model"))
    with open(OUT / "vectors.txt", "w", encoding="utf-8", newline="\n") as out:
        for text in marked_texts() + texts(420):
            if len(text) > 400:
                continue
            has_control = any(t in text for t in ("<s>", "</s>", "<unk>"))
            ids = [None if has_control else library.encode(text)]
            ids += [r.encode(text, add_special_tokens=False).ids for r in readers]
            packed = ["-" if i is None else "".join(BASE64[x >> 6] + BASE64[x & 63] for x in i) for i in ids]
            fields = [p if k == 0 or p != packed[k - 1] else "=" for k, p in enumerate(packed)]
            decoded = text if has_control else library.decode(ids[0])
            fields.append("=" if decoded == text else json.dumps(decoded, ensure_ascii=False))
            out.write("\t".join([json.dumps(text, ensure_ascii=False)] + fields) + "\n")


if __name__ == "__main__":
    main()
