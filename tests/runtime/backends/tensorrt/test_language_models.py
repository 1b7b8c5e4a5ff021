"""Engines of language models give what ONNX Runtime gives on a CPU, token for token, however long their prompts are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor
from edgeformer.runtime.backends.tensorrt.rows import wanted_columns
from edgeformer.runtime.errors import InputError, OptionError

from .conftest import BATCH, CAPACITY, Q_LEN, WANTED, Machine, MakeBundle
from .test_generating import same

# Shorter and longer than a step takes, and one that is empty.
PROMPTS = [[5, 9, 14], [7], [4, 4, 8, 21, 12, 16, 3, 9, 11, 25, 30, 6, 6, 17, 28, 3, 19, 20, 5], [], [*range(3, 20)]]
CONFIGS = {
    "greedy": GenerationConfig(max_new_tokens=7),
    "as long as there is room": GenerationConfig(max_new_tokens=CAPACITY - 19, min_new_tokens=CAPACITY - 20),
    "beam 3": GenerationConfig(max_new_tokens=7, num_beams=3, num_return_sequences=3),
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Bundles of language models with random weights: one of our own, and two of a family."""
    import torch

    from edgeformer.exporter.exporting import export_module
    from edgeformer.models.configs.keys import Keys
    from edgeformer.models.families import FAMILIES, config_class, model_class

    from ....exporter.own_decoder import make

    sizes = {
        "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40, "max_position_embeddings": 64,
        "eos_token_id": 2,
    }  # fmt: skip
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                keys = Keys({**sizes, **({"sliding_window": 5} if name == "mistral" else {})})
                family = FAMILIES.get(name)
                model = make() if family is None else model_class(family)(config_class(family).from_keys(keys)).eval()
            made[name] = tmp_path_factory.mktemp(name) / "bundle"
            export_module(model, made[name])
        return made[name]

    return get


@pytest.fixture(params=["own", "llama", "mistral"])
def base(request: pytest.FixtureRequest, bundles: Callable[[str], Path]) -> Path:
    return bundles(request.param)


@pytest.fixture
def own(machine: Machine, make_bundle: MakeBundle, bundles: Callable[[str], Path]) -> Model:
    return machine.load(make_bundle(base=bundles("own")))


def test_ragged_prompts_give_the_cpus_tokens(machine: Machine, make_bundle: MakeBundle, base: Path) -> None:
    on_gpu, on_cpu = machine.load(make_bundle(base=base)), load(base, "onnx", threads=1)
    assert max(map(len, PROMPTS)) > 2 * Q_LEN[2]
    for config in CONFIGS.values():
        same(on_gpu.generate(PROMPTS, config), on_cpu.generate(PROMPTS, config))


def test_scores_of_every_position_are_the_cpus(machine: Machine, make_bundle: MakeBundle, base: Path) -> None:
    on_gpu, on_cpu = machine.load(make_bundle(base=base)), load(base, "onnx", threads=1)
    targets = [[3] * 9, [4, 5, 6, 7, 8, 9, 10], [], [11], [12, 13]]
    for one, other in zip(on_gpu.score(PROMPTS, targets), on_cpu.score(PROMPTS, targets), strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


def test_sessions_step_prompts_and_take_any_logits(own: Model, bundles: Callable[[str], Path]) -> None:
    on_cpu, rng = load(bundles("own"), "onnx", threads=1), np.random.default_rng(0)
    with own.session(batch=3, capacity=30) as one, on_cpu.session(batch=3, capacity=30) as other:
        for q_len, wanted in ((17, 3), (1, 1), (9, 9), (2, 4)):
            ids, at = rng.integers(3, 31, (3, q_len)), rng.integers(0, q_len, (3, wanted))
            lengths = np.array([q_len, max(1, q_len - 3), q_len])
            found, expected = one.step(ids, lengths, at), other.step(ids, lengths, at)
            real = at < lengths[:, None]
            np.testing.assert_allclose(found[real], expected[real], atol=1e-4)


def test_only_wanted_positions_of_a_prompt_get_logits(own: Model, machine: Machine) -> None:
    """A prompt's last position is all that a search asks for: the frames hold no more."""
    assert isinstance(own.executor, TensorRTExecutor)
    own.generate([PROMPTS[2]], CONFIGS["greedy"])
    (work,) = own.executor.spares
    assert work.sources is None
    assert work.long is not None
    assert (work.long.q_len, work.long.wanted) == (Q_LEN[2], 1)


def test_what_the_engine_does_not_take_is_refused(own: Model) -> None:
    assert (own.bounds.batch, own.bounds.capacity, own.bounds.source_len) == (BATCH[2], CAPACITY, None)
    with pytest.raises(InputError, match=f"an input has 40 tokens, artifact engines was built for {CAPACITY}"):
        own.generate([[5] * 40], CONFIGS["greedy"])
    with pytest.raises(OptionError, match="batch is 17"):
        own.session(batch=17)
    with pytest.raises(InputError, match="rows of 33 tokens were asked for"):
        own.executor.start_empty(1, 33)
    with pytest.raises(InputError, match="17 rows at once, artifact engines takes 16"):
        own.executor.start_empty(17, 3)


def test_columns_are_asked_for_once_and_found_again() -> None:
    at = np.array([[-1, 2, 0], [3, -1, -1]])
    columns, places = wanted_columns(at, 4, WANTED[2])
    assert columns.tolist() == [[2, 0], [3, 0]]
    assert columns[np.arange(2)[:, None], places][at >= 0].tolist() == [2, 0, 3]
    columns, places = wanted_columns(np.array([[1] * 6]), 2, WANTED[2])
    assert columns.tolist() == [[0, 1]]
    assert places.tolist() == [[1] * 6]
