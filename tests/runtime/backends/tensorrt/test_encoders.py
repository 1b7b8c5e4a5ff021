"""An encoder's engine gives what ONNX Runtime gives on a CPU, whatever the head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeformer.runtime import EncoderModel, load_encoder, machine_memory, names
from edgeformer.runtime.encoder_records import TOKEN_TYPE_IDS
from edgeformer.runtime.errors import BundleError, InputError, NotEnoughMemoryError

from .conftest import BATCH, SOURCE_LEN, WANTED, Machine, MakeBundle, profiles

Encoders = Callable[[str], tuple[EncoderModel, EncoderModel]]
ROWS = [[3, 5, 7], [4], [9, 8, 7, 6, 5, 4, 3, 9, 9], *([i % 5 + 3, 6] for i in range(20))]


@pytest.fixture
def both(machine: Machine, make_bundle: MakeBundle, encoder_bundle: Callable[[str], Path]) -> Encoders:
    """A model on the stand-in, and on the CPU."""

    def get(kind: str) -> tuple[EncoderModel, EncoderModel]:
        base = encoder_bundle(kind)
        return load_encoder(make_bundle(base=base), "engines"), load_encoder(base, "onnx", threads=1)

    return get


def test_more_rows_than_the_profile_takes_are_read_one_part_after_another(both: Encoders) -> None:
    on_gpu, on_cpu = both("sentences")
    assert len(ROWS) > BATCH[2]
    np.testing.assert_allclose(on_gpu.encode(ROWS), on_cpu.encode(ROWS), atol=1e-5)
    for one, other in zip(on_gpu.hidden_states(ROWS), on_cpu.hidden_states(ROWS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", ["states", "sentences", "classes", "entities", "masks"])
def test_every_output_is_the_cpus_for_shapes_that_grow_and_shrink(both: Encoders, kind: str) -> None:
    on_gpu, on_cpu = both(kind)
    record, rng = on_gpu.record, np.random.default_rng(0)
    for rows, source_len, wanted in ((1, 3, 1), (20, 9, 2), (2, 30, WANTED[2]), (3, 1, 1)):
        every = {
            names.INPUT_IDS: rng.integers(3, 20, (rows, source_len)),
            names.SOURCE_LENGTHS: rng.integers(1, source_len + 1, rows),
            TOKEN_TYPE_IDS: rng.integers(0, 2, (rows, source_len)),
            names.LOGITS_AT: rng.integers(0, source_len, (rows, wanted)),
        }
        given = {name: every[name] for name in record.inputs()}
        for outputs in (list(record.outputs()), [record.output]):
            found, expected = (model.executor.run(given, outputs) for model in (on_gpu, on_cpu))
            assert list(found) == outputs
            for name in outputs:
                assert found[name].dtype == np.float32
                np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)


def test_shorter_inputs_than_the_profile_takes_are_padded(
    machine: Machine, make_bundle: MakeBundle, encoder_bundle: Callable[[str], Path]
) -> None:
    base, (profile,) = encoder_bundle("states"), profiles("encoder")["encoder"]
    engines = make_bundle(base=base, profiles={"encoder": ({**profile, "source_len": (4, 8, 32)},)})
    on_gpu, on_cpu = load_encoder(engines, "engines"), load_encoder(base, "onnx", threads=1)
    for one, other in zip(on_gpu.hidden_states(ROWS[:2]), on_cpu.hidden_states(ROWS[:2]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_longer_inputs_and_more_masks_than_the_profile_takes_are_refused(both: Encoders) -> None:
    on_gpu, _ = both("masks")
    with pytest.raises(InputError, match=f"an input has 33 tokens, artifact engines was built for {SOURCE_LEN[2]}"):
        on_gpu.hidden_states([[5] * 33])
    ids = np.full((1, 8), 5)
    given = {names.INPUT_IDS: ids, names.SOURCE_LENGTHS: np.array([8]), names.LOGITS_AT: ids[:, : WANTED[2] + 1]}
    given = {name: given.get(name, np.zeros_like(ids)) for name in on_gpu.record.inputs()}
    with pytest.raises(
        InputError, match=f"an input has 6 positions to fill, artifact engines was built for {WANTED[2]}"
    ):
        on_gpu.executor.run(given, [names.LOGITS])


def test_what_does_not_fit_is_refused_before_anything_is_allocated(
    both: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu, _ = both("sentences")
    free, rows = machine_memory.Free(4_000, "GPU memory"), [ROWS[2]] * 3
    monkeypatch.setattr(machine_memory, "free_memory", lambda artifact: free)
    with pytest.raises(NotEnoughMemoryError, match=r"for 3 rows of 9 tokens .*: 2 rows would fit"):
        on_gpu.encode(rows)
    assert len(on_gpu.encode(rows[:2])) == 2


def test_an_encoder_has_one_profile(
    machine: Machine, make_bundle: MakeBundle, encoder_bundle: Callable[[str], Path]
) -> None:
    twice = {"encoder": profiles("encoder")["encoder"] * 2}
    with pytest.raises(BundleError, match="expected one profile of the encoder"):
        load_encoder(make_bundle(base=encoder_bundle("states"), profiles=twice), "engines")
