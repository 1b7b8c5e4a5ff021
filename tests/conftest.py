"""Tiny Transformers, and a tiny bundle, for every test that needs one."""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .encoder_checkpoints import make_encoder_checkpoint

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer

# Read when torch is imported. Threads that share tiny tensors wait for one another longer than they compute: on a busy
# machine these tests take ten times as long with two threads as with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No two sizes are the same, so that none can stand in for another.
TINY: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "num_heads": 5, "num_encoder_layers": 2, "num_decoder_layers": 3, "d_ff": 24,
    "max_positions": 64,
}  # fmt: skip

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
PHONEMES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH".split()
)
SPEAKER: dict[str, Any] = {
    "vocab_size": 3 + len(LETTERS) + len(PHONEMES), "d_model": 32, "num_heads": 2, "num_encoder_layers": 2,
    "num_decoder_layers": 2, "d_ff": 64, "max_positions": 32, "dropout": 0.0,
}  # fmt: skip

Pairs = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    """Builds the tiny model, with the given config fields changed: always the same weights, in evaluation mode.

    It computes in float64, so that tests of "changes nothing" can ask for 12 digits; `.float()` gives the usual type.
    """
    import torch

    from edgeformer.models.configs.paper import TransformerConfig
    from edgeformer.models.transformer import Transformer

    def make(**changes: Any) -> Transformer:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = Transformer(TransformerConfig(**{**TINY, **changes}))
            for parameter in model.parameters():
                if parameter.dim() == 1:  # biases and gains begin at 0 and 1, where a mix-up would not show
                    parameter.data += 0.3 * torch.randn_like(parameter)
        return model.double().eval()

    return make


def teach(model: Transformer, batches: Iterable[Pairs], learning_rate: float) -> None:
    """A second of training: random weights say one token for ever, which shows little of a decoding loop."""
    import torch
    import torch.nn.functional as F

    from edgeformer.exporter.reference import pad

    config = model.config
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    model.train()
    for batch in batches:
        source, lengths = pad([word for word, _ in batch], config.pad_token_id)
        given, _ = pad([[config.bos_token_id, *said] for _, said in batch], config.pad_token_id)
        wanted, _ = pad([[*said, config.eos_token_id] for _, said in batch], -100)
        loss = F.cross_entropy(model(source, lengths, given).flatten(0, 1), wanted.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.requires_grad_(False).eval()


@pytest.fixture(scope="session")
def half_trained(make_model: Callable[..., Transformer]) -> Transformer:
    """The tiny model, half way to spelling backwards: it errs, and ends its rows at many lengths."""
    model, rng = make_model(dropout=0.0).float(), random.Random(0)

    def batch() -> Pairs:
        words = [[rng.randrange(3, model.config.vocab_size) for _ in range(rng.randint(1, 4))] for _ in range(32)]
        return [(word, word[::-1]) for word in words]

    teach(model, (batch() for _ in range(80)), learning_rate=0.01)
    return model.double()


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder as `examples/g2p/train.py` leaves it, half way to saying a phoneme for each letter.

    32 positions; its vocabulary is <pad> <s> </s>, the letters a to z and ', and 39 phonemes. Not to be changed: copy
    it.
    """
    import torch

    from edgeformer.models.checkpoint import save_checkpoint
    from edgeformer.models.configs.paper import TransformerConfig
    from edgeformer.models.transformer import Transformer

    rng = random.Random(0)
    first, letters, phonemes = 3, len(LETTERS), len(PHONEMES)

    def pair() -> tuple[list[int], list[int]]:
        word = [rng.randrange(letters) for _ in range(rng.randint(1, 6))]
        said = [first + letters + letter * phonemes // letters for letter in word]
        return [*(first + letter for letter in word), 2], said

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer(TransformerConfig(**SPEAKER))
    teach(model, ([pair() for _ in range(24)] for _ in range(160)), learning_rate=0.005)
    folder = tmp_path_factory.mktemp("tiny") / "checkpoint"
    folder.mkdir()
    save_checkpoint(folder, model)
    vocabulary = load_example("g2p/vocabulary.py")
    vocabulary.save_tokenizers(folder, *vocabulary.build_tokenizers(LETTERS, PHONEMES))
    return folder


def load_example(path: str) -> Any:
    """A module of `examples/`, which is not a package."""
    file = Path(__file__).parents[1] / "examples" / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_bundle(tiny_checkpoint: Path) -> Path:
    """The tiny checkpoint's bundle, with the artifacts onnx, ort-cpu-fp32 and ort-cpu-int8. Copy it to change it."""
    from edgeformer.exporter.exporting import export_checkpoint
    from edgeformer.exporter.optimizing import optimize_bundle

    folder = tiny_checkpoint.with_name("bundle")
    export_checkpoint(tiny_checkpoint, folder)
    for precision in ("fp32", "int8"):
        optimize_bundle(folder, "ort-cpu", precision)
    return folder


@pytest.fixture(scope="session")
def words() -> list[str]:
    """64 words, of one letter up to all that the tiny checkpoint's positions hold, in no order."""
    rng = random.Random(3)
    lengths = [1, 31, *(rng.randint(1, 12) for _ in range(62))]
    rng.shuffle(lengths)
    return ["".join(rng.choices(LETTERS, k=length)) for length in lengths]


@pytest.fixture(scope="session")
def encoder_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of one of `encoder_checkpoints.ENCODERS`, made once. Copy it to change it."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp("encoder") / "checkpoint"
            folder.mkdir()
            make_encoder_checkpoint(folder, kind)
            made[kind] = folder
        return made[kind]

    return make


@pytest.fixture(scope="session")
def encoder_bundle(encoder_checkpoint: Callable[[str], Path]) -> Callable[[str], Path]:
    """Its bundle, with the portable artifact alone, made once. Copy it to change it."""
    from edgeformer.exporter.exporting import export_checkpoint

    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            checkpoint = encoder_checkpoint(kind)
            made[kind] = checkpoint.with_name("bundle")
            export_checkpoint(checkpoint, made[kind])
        return made[kind]

    return make
