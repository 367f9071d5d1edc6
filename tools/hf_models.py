#!/usr/bin/env python3
"""Tiny random models of every Hugging Face family that Trireme converts, and checks against transformers.

usage: hf_models.py make DIR
           Writes the models with golden files: logits, greedy tokens, losses of 20 steps of AdamW.
           tests/golden/hf was made by it; tests read those files and need no Python.
       hf_models.py check TRIREME [--launch "mpirun -n 2"] [--work DIR]
           Imports and exports every model with the program: tensors bit-equal, the export loads in
           transformers with no edits and generates the same 50 tokens, a trained model's export has
           the losses that Trireme reports.

Needs torch, transformers, safetensors and numpy (any recent version; CPU is enough).
"""
import argparse
import copy
import json
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

PROMPT, GENERATED = 5, 50
SEQUENCE, BATCH, STEPS, SEED, RATE = 16, 4, 20, 1234, 1e-3
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
COMMON = dict(vocab_size=61, bos_token_id=1, eos_token_id=2)
LLAMA = dict(COMMON, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
GPT2 = dict(COMMON, n_embd=24, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0)
# name: class of the configuration, its arguments, type of the weights, how the files are written.
MODELS = {
    "gpt2": ("GPT2Config", GPT2, torch.float32, {}),
    "gpt2_untied": ("GPT2Config", dict(GPT2, n_inner=52, tie_word_embeddings=False), torch.float16,
                    {"bare": True}),
    "llama2": ("LlamaConfig", dict(LLAMA, num_key_value_heads=4), torch.float32, {"tokenizer": True}),
    "llama31": ("LlamaConfig", dict(LLAMA, rope_theta=500000.0, rope_scaling=LLAMA3), torch.bfloat16,
                {"shards": True, "old_keys": True}),
    "llama32": ("LlamaConfig", dict(LLAMA, rope_theta=500000.0, rope_scaling=dict(LLAMA3, factor=32.0),
                                    tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
                torch.float32, {}),
    "mistral": ("MistralConfig", dict(LLAMA, head_dim=10, sliding_window=None), torch.float32, {}),
    "qwen2": ("Qwen2Config", dict(LLAMA, tie_word_embeddings=True, rope_theta=1000000.0), torch.bfloat16, {}),
    "qwen3": ("Qwen3Config", dict(LLAMA, head_dim=10, rope_theta=1000000.0), torch.float32, {}),
}
TRAINED = ["gpt2", "llama32", "qwen2", "qwen3"]


def fill(model, seed, dtype):
    """Weights that hide nothing: biases away from zero, gains away from one; rounded to the file's type."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            gain = value.dim() == 1 and name.endswith("weight")
            value.copy_(1 + 0.2 * noise if gain else 0.2 * noise)
            value.copy_(value.to(dtype))  # parameters alone: rotary frequencies stay in fp32


def greedy(model, prompt):
    return model.generate(torch.tensor([prompt]), max_new_tokens=GENERATED, min_new_tokens=GENERATED,
                          do_sample=False, pad_token_id=0, eos_token_id=None)[0].tolist()


def least_margin(model, tokens):
    """Smallest distance between the first and the second choice of a greedy continuation."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, PROMPT - 1:-1]
    best = logits.topk(2).values
    return (best[:, 0] - best[:, 1]).min().item()


def build(name):
    """A model whose greedy choices are clear, so that rounding does not decide them."""
    kind, arguments, dtype, _ = MODELS[name]
    config = getattr(transformers, kind)(**copy.deepcopy(arguments))
    prompt = [(7 * i + 3) % 61 for i in range(PROMPT)]
    for seed in range(100):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        fill(model, seed, dtype)
        tokens = greedy(model, prompt)
        if least_margin(model, tokens) > 5e-3 and len(set(tokens)) > 12:
            return model, tokens
    raise SystemExit(f"{name}: no seed gives clear choices")


def old_keys(directory):
    """config.json as transformers 4 wrote it."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.43.0"
    path.write_text(json.dumps(config, indent=2) + "\n")


def bare_names(directory):
    """As the first public GPT-2 files: no prefix, and masks among the weights."""
    path = directory / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {n.removeprefix("transformer."): file.get_tensor(n) for n in file.keys()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 8, 8)
    save_file(tensors, path, metadata={"format": "pt"})


def letter(token):
    """The text of a token: 61 printable characters."""
    return chr(ord("A") + token)


def letter_tokenizer(directory):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    tokenizer = Tokenizer(models.BPE({letter(i): i for i in range(61)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": letter(1), "eos_token": letter(2)}) + "\n")


def write_model(model, name, directory):
    _, _, dtype, how = MODELS[name]
    saved = copy.deepcopy(model).to(dtype)
    saved.generation_config.eos_token_id = [2, 5] if how.get("tokenizer") else 2
    saved.save_pretrained(directory, max_shard_size="12KB" if how.get("shards") else "5GB")
    if how.get("old_keys"):
        old_keys(directory)
    if how.get("bare"):
        bare_names(directory)
    if how.get("tokenizer"):
        letter_tokenizer(directory)


def write_tokens(prefix):
    """One document of 20 x 4 x 16 + 1 tokens, in Megatron's format. Returns the tokens."""
    count = STEPS * BATCH * SEQUENCE + 1
    chain = np.random.RandomState(7)
    tokens = [3]
    for _ in range(count - 1):  # a language with something to learn
        tokens.append(int((5 * tokens[-1] + chain.randint(0, 4) + 1) % 61))
    tokens = np.array(tokens, dtype="<u2")
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iqqq", count, 0, 0, 1)
    prefix.with_suffix(".idx").write_bytes(index)
    return tokens.astype(np.int64)


def batches(tokens):
    """The samples of each step in Megatron's order: one epoch, shuffled by numpy's old generator."""
    order = np.arange(STEPS * BATCH)
    np.random.RandomState(SEED).shuffle(order)
    for step in range(STEPS):
        rows = [tokens[s * SEQUENCE:s * SEQUENCE + SEQUENCE + 1] for s in order[step * BATCH:(step + 1) * BATCH]]
        yield torch.tensor(np.stack(rows))


def train(model, tokens):
    """Losses and gradient norms of AdamW with decay on matrices and clipping at 1."""
    model = copy.deepcopy(model).train()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for rows in batches(tokens):
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def make(directory):
    directory.mkdir(parents=True, exist_ok=True)
    tokens = write_tokens(directory / "tokens")
    for name in MODELS:
        here = directory / name
        shutil.rmtree(here, ignore_errors=True)
        model, generated = build(name)
        write_model(model, name, here)
        rows = torch.tensor(np.stack([tokens[:SEQUENCE], tokens[100:100 + SEQUENCE]]))
        with torch.no_grad():
            logits = model(rows).logits
        (here / "logits.f32").write_bytes(logits.float().numpy().astype("<f4").tobytes())
        golden = {"tokens": rows.tolist(), "vocab": 61, "generated": generated, "prompt": PROMPT}
        if name in TRAINED:
            golden["losses"], golden["norms"] = train(model, tokens)
        (here / "golden.json").write_text(json.dumps(golden) + "\n")
        print(f"{name}: {sum(f.stat().st_size for f in here.iterdir())} bytes")


def tensors_of(directory):
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt"}, path
            found.update({n: file.get_tensor(n) for n in file.keys()})
    return found


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def compare_tensors(name, before, after):
    before = tensors_of(before)
    if MODELS[name][3].get("bare"):
        before = {n if n.startswith("lm_head") else "transformer." + n: t for n, t in before.items()
                  if not n.endswith(".attn.bias")}
    after = tensors_of(after)
    assert before.keys() == after.keys(), (name, before.keys() ^ after.keys())
    for tensor, value in before.items():
        assert value.dtype == after[tensor].dtype and bits(value) == bits(after[tensor]), (name, tensor)


class Program:
    def __init__(self, path, launch):
        self.path, self.launch = path, shlex.split(launch)

    def __call__(self, *words):
        command = [*self.launch, self.path, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def load(directory):
    return transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager").eval()


def check_trained(program, name, golden, checkpoint, work):
    """Trains the import, exports it, and asks transformers for the loss of a last batch."""
    run = work / "run"
    program("train", checkpoint.with_suffix(".ini"), f"--run.directory={run}", f"--run.steps={STEPS}",
            f"--batch.sequence={SEQUENCE}", f"--batch.global={BATCH}", "--precision.compute=f32",
            f"--optimizer.learning_rate={RATE}", "--schedule.kind=constant", "--data.kind=indexed",
            f"--data.path={work / 'tokens'}", "--data.split=1,0,0", f"--run.seed={SEED}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    program("convert", "--to-hf", work / "trained", "--checkpoint", run, "--like", work / name, "--dtype", "f32")
    model = load(work / "trained")
    tokens = write_tokens(work / "again")
    rows = list(batches(tokens))[0]
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 61), rows[:, 1:].reshape(-1)).item()
    worst = max(abs(a / b - 1) for a, b in zip(losses, golden["losses"]))
    print(f"{name}: 20 steps within {worst:.1e} of PyTorch; trained export has loss {loss:.4f}")
    assert worst < 1e-4 and len(losses) == STEPS and loss < golden["losses"][0]


def check_generate(program, name, golden, checkpoint, tokenizer):
    """`trireme generate` continues as transformers does."""
    prompt, rest = golden["generated"][:PROMPT], golden["generated"][PROMPT:]
    out = program("generate", checkpoint, "--prompt", "".join(map(letter, prompt)), "--tokens", GENERATED, "--ignore-eod",
                  "--tokenizer", tokenizer, "--format", "jsonl", "--precision.compute=f32")
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert "".join(map(letter, rest)) in json.dumps(lines[0], ensure_ascii=False).replace("\\\\", "\\"), (name, out)
    print(f"{name}: trireme generate gives the same {GENERATED} tokens")


def check(program, work):
    make(work)
    for name in MODELS:
        source, golden = work / name, json.loads((work / name / "golden.json").read_text())
        checkpoint, export = work / f"{name}.h5", work / f"{name}_export"
        program("convert", "--from-hf", source, "--output", checkpoint)
        program("convert", "--to-hf", export, "--checkpoint", checkpoint)
        compare_tensors(name, source, export)
        loaded, problems = transformers.AutoModelForCausalLM.from_pretrained(
            export, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not any(problems.values()), (name, problems)
        generated = greedy(loaded.eval(), golden["tokens"][0][:0] + golden["generated"][:PROMPT])
        assert generated == golden["generated"], (name, generated)
        with torch.no_grad():
            logits = loaded(torch.tensor(golden["tokens"])).logits.numpy()
        wanted = np.fromfile(source / "logits.f32", "<f4").reshape(logits.shape)
        assert np.abs(logits - wanted).max() < 1e-5, name
        print(f"{name}: bit-equal, loads, same {GENERATED} tokens")
        check_generate(program, name, golden, checkpoint, work / "llama2" / "tokenizer.json")
        if MODELS[name][3].get("tokenizer"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(export)
            assert tokenizer(letter(3) + letter(5)).input_ids == [3, 5] and tokenizer.eos_token_id == 2
            assert loaded.generation_config.eos_token_id == [2, 5]
        if name in TRAINED:
            check_trained(program, name, golden, checkpoint, work)
            shutil.rmtree(work / "run")
            shutil.rmtree(work / "trained")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["make", "check"])
    parser.add_argument("path", type=pathlib.Path, help="directory to write, or the program")
    parser.add_argument("--launch", default="mpirun -n 1", help="what starts the program")
    parser.add_argument("--work", type=pathlib.Path, help="directory for the check; default: a temporary one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.action == "make":
        return make(arguments.path)
    with tempfile.TemporaryDirectory() as temporary:
        check(Program(arguments.path.resolve(), arguments.launch), arguments.work or pathlib.Path(temporary))


if __name__ == "__main__":
    main()
