"""Train the character-to-phoneme Transformer from a pronunciation list.

    python examples/g2p/train.py --data g014b2b.train --output build/train

The list has one pronunciation a line, `WORD<tab>PHONEMES`; a word may have several. A thousand words are held out to
watch; nothing else decides what is trained on. State is saved after every epoch, and the same command goes on from
there. More `--epochs` than before lengthen the run: the learning rate warms up, stays, and falls to zero over the last
`--decay-epochs`.

Needs the `export` extra, and matplotlib for the curve.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import random
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from muon import Muon, has_fast_bfloat16
from rich.console import Console
from rich.progress import track
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from vocabulary import build_tokenizers, save_tokenizers

from edgeformer.exporter.reference import greedy, pad
from edgeformer.models.checkpoint import load_checkpoint, save_checkpoint
from edgeformer.models.configs.paper import TransformerConfig
from edgeformer.models.transformer import Transformer

console = Console(stderr=True)
HELD_OUT = 1000
GENERATION = {"max_new_tokens": 40}  # twice what the longest word needs


@dataclasses.dataclass(frozen=True)
class Example:
    source: list[int]
    target: list[int]


def read_pronunciations(path: Path) -> dict[str, list[str]]:
    """Each word's pronunciations, in the order of the file."""
    words: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, phonemes = line.split("\t")
        words.setdefault(word, []).append(phonemes)
    return words


def encode(words: dict[str, list[str]], source: Tokenizer, target: Tokenizer) -> list[Example]:
    pairs = [(word, phonemes) for word, several in words.items() for phonemes in several]
    sources = source.encode_batch([word for word, _ in pairs])
    targets = target.encode_batch([phonemes for _, phonemes in pairs])
    return [Example(s.ids, t.ids) for s, t in zip(sources, targets, strict=True)]


def batches(examples: list[Example], size: int, seed: int) -> list[list[Example]]:
    """Shuffled batches of words of like lengths, so that little of a batch is padding."""
    rng = random.Random(seed)
    shuffled = rng.sample(examples, len(examples))
    shuffled.sort(key=lambda e: (len(e.source) + rng.random(), len(e.target)))
    cut = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]
    rng.shuffle(cut)
    return cut


class ByteDropout(nn.Module):
    """Dropout drawn from bytes, to 1/256: on a CPU several times faster than one random float a value."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.cut = round(p * 256)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.cut
        return x * keep.to(x.dtype).mul_(256 / (256 - self.cut))


def use_byte_dropout(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, ByteDropout(child.p))


def disagreement(logits: Tensor, counts: Tensor) -> Tensor:
    """Symmetric Kullback-Leibler divergence per counted token between the first half of the rows and the second."""
    first, second = (half[counts] for half in logits.log_softmax(-1).chunk(2))
    there = F.kl_div(first, second, reduction="sum", log_target=True)
    back = F.kl_div(second, first, reduction="sum", log_target=True)
    return (there + back) / (2 * len(first))


def loss_of(model: Transformer, batch: list[Example], smoothing: float, consistency: float) -> Tensor:
    """Label-smoothed cross-entropy per target token (section 5.4 of the paper); the end token is predicted as well.

    With `consistency`, each example is said twice under different dropout, and the two must agree: R-Drop (Liang et
    al., "R-Drop: Regularized Dropout for Neural Networks", 2021), where this is alpha.
    """
    config = model.config
    if consistency:
        batch = batch + batch
    source, lengths = pad([e.source for e in batch], config.pad_token_id)
    given, _ = pad([[config.bos_token_id, *e.target] for e in batch], config.pad_token_id)
    wanted, _ = pad([[*e.target, config.eos_token_id] for e in batch], -100)
    with sdpa_kernel(SDPBackend.MATH):  # the unfused attention is the faster one to train on a CPU
        logits = model(source, lengths, given).float()
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=smoothing)
    if consistency:
        loss = loss + consistency * disagreement(logits, wanted[: len(wanted) // 2] >= 0)
    return loss


def rate_at(step: int, warmup: int, total: int, decay: int) -> float:
    """Share of the peak learning rate: up, level, and down to zero over the last `decay` steps."""
    return min((step + 1) / warmup, 1.0, (total - step) / decay)


def word_error_rate(model: Transformer, words: dict[str, list[str]], source: Tokenizer, target: Tokenizer) -> float:
    """Percent of words whose greedy pronunciation is none of the references."""
    rows = [e.ids for e in source.encode_batch(list(words))]
    said = [ids for i in range(0, len(rows), 250) for ids in greedy(model, rows[i : i + 250], 40)]
    wrong = sum(target.decode(ids) not in refs for ids, refs in zip(said, words.values(), strict=True))
    return 100 * wrong / len(words)


class Run:
    """A training run with everything that must survive an interruption."""

    def __init__(self, arguments: argparse.Namespace, config: TransformerConfig) -> None:
        self.arguments, self.path = arguments, arguments.output / "state.pt"
        self.model = Transformer(config)
        use_byte_dropout(self.model)
        # What computes: a copy in bfloat16 where that is fast. What is learned stays in float32, in `model`.
        self.working = copy.deepcopy(self.model).bfloat16() if has_fast_bfloat16() else self.model
        self.average = Transformer(config).eval()
        self.average.load_state_dict(self.model.state_dict())
        matrices = [p for name, p in self.model.named_parameters() if p.ndim == 2 and "embedding" not in name]
        chosen = {id(matrix) for matrix in matrices}
        others = [p for p in self.model.parameters() if id(p) not in chosen]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, arguments.rate),
            torch.optim.AdamW(others, arguments.rate, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True),
        ]
        self.step, self.history = 0, list[dict[str, float]]()

    def restore(self) -> None:
        """Go on from the last epoch's state; without one, begin with the weights of `--begin-with`."""
        if not self.path.exists():
            if self.arguments.begin_with:
                weights = load_checkpoint(self.arguments.begin_with).state_dict()
                self.model.load_state_dict(weights)
                self.average.load_state_dict(weights)
            return
        state = torch.load(self.path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        torch.set_rng_state(state["random"])
        self.step, self.history = state["step"], state["history"]
        console.print(f"going on after epoch {len(self.history)}")

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(), "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers], "random": torch.get_rng_state(),
            "step": self.step, "history": self.history,
        }  # fmt: skip
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.path)

    def epoch(self, examples: list[Example]) -> float:
        """One pass over the examples; the mean loss."""
        arguments, number = self.arguments, len(self.history)
        plan = batches(examples, arguments.batch, arguments.seed + number)
        total, losses = len(plan) * arguments.epochs, []
        self.working.train()
        self.publish()
        for batch in track(plan, f"epoch {number + 1} of {arguments.epochs}", console=console, transient=True):
            share = rate_at(self.step, arguments.warmup, total, len(plan) * arguments.decay_epochs)
            loss = loss_of(self.working, batch, arguments.smoothing, arguments.consistency)
            self.working.zero_grad()
            loss.backward()
            for learned, computed in zip(self.model.parameters(), self.working.parameters(), strict=True):
                learned.grad = None if computed.grad is None else computed.grad.float()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.param_groups[0]["lr"] = arguments.rate * share
                optimizer.step()
            self.publish()
            self.step += 1
            self.follow(min(arguments.average, self.step / (self.step + 10)))
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def publish(self) -> None:
        """Give the model that computes the weights that were learned."""
        torch._foreach_copy_(list(self.working.parameters()), list(self.model.parameters()))

    @torch.no_grad()
    def follow(self, keep: float) -> None:
        """Move the averaged weights, which are the ones that are kept, a little towards the trained ones."""
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - keep)


def draw_curve(history: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = [entry["epoch"] for entry in history]
    figure, left = pyplot.subplots(figsize=(7, 4))
    left.plot(epochs, [entry["loss"] for entry in history], color="tab:gray")
    left.set(xlabel="epoch", ylabel="training loss (label-smoothed, gray)")
    right = left.twinx()
    right.plot(epochs, [entry["held_out_wer"] for entry in history], color="tab:blue")
    right.set_ylabel("WER on held-out words, % (blue)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="pronunciation list to train on")
    parser.add_argument("--output", type=Path, required=True, help="folder for the state, the curve and the checkpoint")
    parser.add_argument(
        "--begin-with", type=Path, metavar="CHECKPOINT", help="weights to begin with; random by default"
    )
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--decay-epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256, help="pronunciations a batch")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=2000, help="steps")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--consistency", type=float, default=0.0, help="weight of R-Drop, which doubles the work")
    parser.add_argument("--average", type=float, default=0.999, help="share of the averaged weights that a step keeps")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse(sys.argv[1:])
    arguments.output.mkdir(parents=True, exist_ok=True)
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    words = read_pronunciations(arguments.data)
    held_out = set(random.sample(sorted(words), HELD_OUT))
    source, target = build_tokenizers(
        {letter for word in words for letter in word.lower()},
        {phoneme for several in words.values() for phonemes in several for phoneme in phonemes.split()},
    )
    save_tokenizers(arguments.output, source, target)
    watched = {word: refs for word, refs in words.items() if word in held_out}
    examples = encode({word: refs for word, refs in words.items() if word not in held_out}, source, target)
    config = TransformerConfig(
        vocab_size=source.get_vocab_size() + target.get_vocab_size() - 3, d_model=256, num_heads=4, d_ff=1024,
        num_encoder_layers=4, num_decoder_layers=2, max_positions=64, dropout=arguments.dropout,
    )  # fmt: skip
    run = Run(arguments, config)
    size = sum(parameter.numel() for parameter in run.model.parameters())
    console.print(f"{len(examples):,} pronunciations to train on, {len(watched):,} words held out, {size:,} parameters")
    run.restore()
    while len(run.history) < arguments.epochs:
        start = time.monotonic()
        loss = run.epoch(examples)
        wer = word_error_rate(run.average, watched, source, target)
        seconds = time.monotonic() - start
        run.history.append({"epoch": len(run.history) + 1, "loss": loss, "held_out_wer": wer, "seconds": seconds})
        run.save()
        save_checkpoint(arguments.output, run.average, torch.float16)
        (arguments.output / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
        (arguments.output / "history.json").write_text(json.dumps(run.history, indent=1) + "\n")
        console.print(f"epoch {len(run.history)}: loss {loss:.4f}, held-out WER {wer:.2f} %, {seconds:.0f} s")
    draw_curve(run.history, arguments.output / "curve.png")


if __name__ == "__main__":
    main()
