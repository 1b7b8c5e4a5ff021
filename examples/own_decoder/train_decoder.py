"""Train the decoder of model.py for a minute, on text files: by default on edgeformer's own documentation.

    cd examples/own_decoder
    python train_decoder.py

Needs the `export` extra. The tokenizer, byte pairs of the text itself, is made with the library `tokenizers`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from model import TRAINED, Config, ParallelDecoder, save
from rich.progress import Progress
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
END, VOCABULARY = "<end>", 512


def make_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pieces(ids: Tensor, count: int, length: int) -> Tensor:
    """Pieces of the text that begin anywhere, int64 (count, length + 1)."""
    begins = torch.randint(len(ids) - length, (count,))
    return ids[begins[:, None] + torch.arange(length + 1)]


def train(model: ParallelDecoder, ids: Tensor, seconds: float) -> float:
    """Train for some seconds; the last losses' mean, in nats a token."""
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    begin, losses = time.monotonic(), list[float]()
    with Progress(transient=True) as progress:
        task = progress.add_task("training", total=seconds)
        while (passed := time.monotonic() - begin) < seconds:
            share = passed / seconds
            optimizer.param_groups[0]["lr"] = 2e-3 * min(1.0, share * 20) * (1 - share)
            batch = pieces(ids, 16, 64)
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            progress.update(task, completed=passed, description=f"training, loss {loss.item():.2f}")
    return sum(losses[-20:]) / len(losses[-20:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    parser.add_argument("--text", type=Path, nargs="+", default=default, help="UTF-8 files to learn from")
    parser.add_argument("--output", type=Path, default=TRAINED, help="folder for weights, sizes and tokenizer")
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args(sys.argv[1:])
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    texts = [path.read_text(encoding="utf-8") for path in arguments.text]
    tokenizer = make_tokenizer(texts)
    end = tokenizer.token_to_id(END)
    ids = torch.tensor([i for text in texts for i in [*tokenizer.encode(text).ids, end]])
    model = ParallelDecoder(Config(vocab_size=tokenizer.get_vocab_size()))
    loss = train(model, ids, arguments.seconds)
    save(model.eval(), arguments.output)
    tokenizer.save(str(arguments.output / "tokenizer.json"))
    options = {"max_new_tokens": 48, "repetition_penalty": 1.3}
    (arguments.output / "generation_config.json").write_text(json.dumps(options) + "\n", encoding="utf-8")
    print(f"{len(ids):,} tokens, loss {loss:.2f} nats a token; {arguments.output} holds the model")


if __name__ == "__main__":
    main()
