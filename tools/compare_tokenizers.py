#!/usr/bin/env python3
"""Compares the ids of `trireme tokenize` with those of Hugging Face's tokenizers (and tiktoken), and their speed.

Needs the Python packages tokenizers, tiktoken and sentencepiece (pip install tokenizers tiktoken sentencepiece); the
build and the tests do not.
Texts are random strings over all of Unicode, mixed with what pre-tokenizers treat specially, and lines of the
files given with --text. Every text travels as a line of JSONL through the program into a dataset.

usage: compare_tokenizers.py PROGRAM TOKENIZER... [--strings N] [--seed S] [--text FILE...] [--marks] [--speed]
                            [--train FOLDER]
A TOKENIZER is a directory or file that PROGRAM takes: tokenizer.json, vocab.json with merges.txt, a .tiktoken file of
cl100k or Llama 3, or a tokenizer.model of SentencePiece. --train makes more of them in FOLDER, from the first 5 MB of the
texts: tokenizer.json files with the pre-tokenizers of Llama 3, Qwen 2 and Mistral Nemo, and two SentencePiece models.
Exit code 1 where any ids differ.
"""
import argparse
import array
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

POOLS = [list(range(32, 127)), [9, 10, 13, 32, 32, 32, 10], list(range(0xA0, 0x250)), list(range(0x400, 0x460)),
         list(range(0x4E00, 0x4F00)), list(range(0x1F300, 0x1F650)), list(range(48, 58)), list(range(97, 123)),
         [0x300, 0x301, 0x200D, 0x200B, 0xFEFF, 0x85, 0xA0, 0x180E, 0x2028, 0x3000, 0x1C, 0x17F, 0x212A, 0],
         list(range(0x660, 0x66A)) + [0xB2, 0xBD, 0x2167], list(range(0x20)), list(range(0xAC00, 0xAD00))]
PIECES = ["'s", "'S", "'ll", "'LL", "'ve", " the", " of", "<|endoftext|>", "<|eot_id|>", "<s>", "</s>", "\r\n", "\n\n",
          " \n", "    ", "\u2581", "don't", "http://", "1234", "camelCase", "\u65e5\u672c"]


def random_texts(count, seed):
    """Texts over the characters that this Python's Unicode tables assign, so that versions agree on their classes."""
    chance = random.Random(seed)
    assigned = [c for c in range(0x110000)
                if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    pools = POOLS + [assigned]
    for _ in range(count):
        parts = []
        for _ in range(chance.randint(1, 12)):
            if chance.random() < 0.25:
                parts.append(chance.choice(PIECES))
            else:
                pool = chance.choice(pools)
                parts.append("".join(chr(chance.choice(pool)) for _ in range(chance.randint(1, 6))))
        yield "".join(parts)


PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+",
    "nemo": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"}


def train(folder, texts):
    """tokenizer.json of three families, and SentencePiece models of both kinds; their paths."""
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    folder, sample, made = pathlib.Path(folder), texts[:1700], []
    for name, pattern in PATTERNS.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
            vocab_size=30000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
            special_tokens=[AddedToken("<|endoftext|>", normalized=False)]))
        made.append(folder / name / "tokenizer.json")
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(made[-1]))
    lines = [line for text in sample for line in text.splitlines() if 0 < len(line) < 2000]
    for kind, fallback in (("bpe", True), ("unigram", False)):
        made.append(folder / ("sentencepiece_" + kind) / "tokenizer.model")
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        with open(made[-1], "wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=file, vocab_size=8000, model_type=kind,
                byte_fallback=fallback, character_coverage=0.9995, minloglevel=2)
    return made


def reference(path, marks):
    """A function from a list of texts to a list of lists of ids."""
    path = pathlib.Path(path)
    if path.suffix == ".model":
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return lambda texts: processor.encode(list(texts), num_threads=1)
    if path.suffix == ".tiktoken":
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe
        pattern = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
                   r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
        ranks = load_tiktoken_bpe(str(path))
        last = {"<|endoftext|>": 100257} if len(ranks) == 100256 else {"<|end_of_text|>": 128001}
        encoding = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens=last)
        allowed = "all" if marks else set()
        return lambda texts: encoding.encode_batch(texts, num_threads=1, allowed_special=allowed, disallowed_special=())
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.exists():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        tokenizer = Tokenizer(models.BPE.from_file(str(path / "vocab.json"), str(path / "merges.txt")))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    tokenizer.encode_special_tokens = not marks
    return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def normalized_alike(path, texts):
    """The texts that the library's Unicode tables and this Python's bring to the same NFC: the library's are older, and
    leave combining marks of Unicode 11 and later where they stand."""
    path = pathlib.Path(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix != ".json" or (json.loads(file.read_text()).get("normalizer") or {}).get("type") != "NFC":
        return texts
    from tokenizers import normalizers
    library = normalizers.NFC()
    alike = [text for text in texts if library.normalize_str(text) == unicodedata.normalize("NFC", text)]
    if len(alike) < len(texts):
        print(f"{path}: {len(texts) - len(alike)} texts left out, which the library normalizes by older tables")
    return alike


def run_program(program, tokenizer, texts, folder, marks):
    """Ids of each text, and the seconds that the program took in all."""
    source, output = folder / "texts.jsonl", folder / "ids"
    with open(source, "w", encoding="ascii") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    start = time.perf_counter()
    subprocess.run([program, "tokenize", "--input", str(source), "--tokenizer", str(tokenizer), "--output", str(output),
                    "--append-eod", "no", "--special-tokens", "marks" if marks else "text"], check=True,
                   stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    index = (folder / "ids.idx").read_bytes()
    code, = struct.unpack_from("<B", index, 17)
    count, = struct.unpack_from("<Q", index, 18)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    ids = array.array("H" if code == 8 else "i")
    ids.frombytes((folder / "ids.bin").read_bytes())
    result, place = [], 0
    for length in lengths:
        result.append(list(ids[place:place + length]))
        place += length
    return result, seconds


def compare(options, tokenizer, texts, name):
    expected_of = reference(tokenizer, options.marks)
    texts = normalized_alike(tokenizer, texts)
    with tempfile.TemporaryDirectory() as folder:
        found, _ = run_program(options.program, tokenizer, texts, pathlib.Path(folder), options.marks)
    differences = 0
    if str(tokenizer).endswith(".model"):  # documents without ids, as of normalized blanks, are left out
        texts = [text for text, ids in zip(texts, expected_of(texts)) if ids]
    if len(found) != len(texts):
        print(f"{tokenizer}: {len(texts)} texts, {len(found)} documents")
        return 1
    for start in range(0, len(texts), 2000):
        for text, want, got in zip(texts[start:], expected_of(texts[start:start + 2000]), found[start:]):
            if want != got:
                differences += 1
                if differences <= 5:
                    print(f"  {ascii(text)[:300]}\n    expected {want[:40]}\n    found    {got[:40]}")
    print(f"{tokenizer}: {len(texts)} {name}, {differences} differ")
    return differences


def measure(options, tokenizer, texts):
    """MB/s of processor time on one core; the program's own start is in its time."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    size = sum(len(text.encode()) for text in texts) / 1e6
    expected_of = reference(tokenizer, options.marks)
    start = time.process_time()
    for first in range(0, len(texts), 2000):
        expected_of(texts[first:first + 2000])
    theirs = size / (time.process_time() - start)
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        run_program(options.program, tokenizer, texts, pathlib.Path(folder), options.marks)
        after = os.times()
    seconds = after.children_user - before.children_user + after.children_system - before.children_system
    ours = size / seconds
    print(f"{tokenizer}: {size:.1f} MB of text, per core: {ours:.1f} MB/s here, {theirs:.1f} MB/s there, "
          f"{ours / theirs:.1f} times")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--train")
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    lines = []
    for path in options.text:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        lines += [text[i:i + 3000] for i in range(0, len(text), 3000)]
    differences = 0
    if options.train:
        options.tokenizers += map(str, train(options.train, lines))
    for tokenizer in options.tokenizers:
        texts = list(random_texts(options.strings, options.seed))
        differences += compare(options, tokenizer, texts, "random strings") if texts else 0
        differences += compare(options, tokenizer, lines, "texts of files") if lines else 0
        if options.speed and lines:
            measure(options, tokenizer, lines * max(1, int(2e7 / max(1, sum(map(len, lines))))))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
