"""Weights in codes of 4 and 8 bits."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.exporter.ort_cpu.block_codes import Scheme, pack, quantize
from edgeformer.exporter.ort_cpu.gptq import quantize_with_compensation


def weights(k: int = 128, n: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(k, n)) * 10.0 ** rng.integers(-4, 4, (k, n))).astype(np.float32)
    weight[:, 2] = 0
    return weight


@pytest.mark.parametrize("block", [32, 64, 128])
def test_a_weight_in_8_bits_is_off_by_half_a_step_at_most(block: int) -> None:
    weight = weights()
    weight[5, 3], weight[6, 3] = -1e4, 1e4
    made = quantize(weight, Scheme(8, block))
    assert (made.codes.dtype, made.codes.shape) == (np.uint8, (6, 128 // block, block))
    assert (made.scales.dtype, made.scales.shape) == (np.float32, (6, 128 // block))
    back, steps = made.weight(), np.repeat(made.scales, block, axis=1).T
    assert (np.abs(back - weight) <= steps / 2 * (1 + 1e-5)).all()
    assert (made.codes[weight.T.reshape(made.codes.shape) == 0] == 128).all()
    assert (back[:, 2] == 0).all()
    assert made.codes.min() >= 1, "symmetric: as far below 128 as above it"
    assert back[5, 3] == -back[6, 3] == pytest.approx(-1e4)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_no_other_scale_of_the_search_is_better(bits: int, symmetric: bool) -> None:
    """The error is at most that of the plain scale, which spreads the codes over the whole range."""
    rng = np.random.default_rng(1)
    weight = rng.standard_t(4, size=(64, 40)).astype(np.float32)
    made = quantize(weight, Scheme(bits, 64, symmetric))
    low, high = np.minimum(weight.min(0), 0), np.maximum(weight.max(0), 0)
    largest, most = np.abs(weight).max(0), (1 << bits) - 1
    step = largest / (most // 2) if symmetric else (high - low) / most
    zero = 0 if symmetric else np.rint(-low / step)
    codes = np.rint(weight / step) + zero
    plain = ((codes.clip(-(most // 2), most // 2) if symmetric else codes.clip(0, most)) - zero) * step
    assert ((made.weight() - weight) ** 2).sum() <= ((plain - weight) ** 2).sum() * (1 + 1e-5)


def test_inputs_that_matter_are_kept_better() -> None:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(32, 50)).astype(np.float32)
    importance = np.where(np.arange(32) < 4, 1000.0, 1.0).astype(np.float32)
    plain, weighted = (quantize(weight, Scheme(4, 32), given).weight() - weight for given in (None, importance))
    assert (weighted[:4] ** 2).sum() < 0.8 * (plain[:4] ** 2).sum()


@pytest.mark.parametrize("scheme", [Scheme(4, 128), Scheme(4, 32), Scheme(4, 32, False), Scheme(8, 64)], ids=str)
def test_compensation_loses_less_of_the_products_than_rounding_alone(scheme: Scheme) -> None:
    rng = np.random.default_rng(3)
    mixed = rng.normal(size=(128, 128)) * np.exp(rng.normal(size=128))
    x = (rng.normal(size=(1000, 128)) @ mixed).astype(np.float32)
    weight = rng.normal(size=(128, 30)).astype(np.float32)
    alone, compensated = quantize(weight, scheme), quantize_with_compensation(weight, scheme, x.T @ x)
    lost, less = (np.linalg.norm(x @ (made.weight() - weight)) for made in (alone, compensated))
    assert less < 0.85 * lost
    assert compensated.codes.shape == alone.codes.shape


def test_inputs_that_a_sample_never_shows_are_no_obstacle() -> None:
    weight = np.random.default_rng(4).normal(size=(32, 5)).astype(np.float32)
    made = quantize_with_compensation(weight, Scheme(4, 32), np.zeros((32, 32), np.float32))
    assert np.isfinite(made.weight()).all()
    assert np.abs(made.weight() - weight).max() < np.abs(weight).max() / 7


def test_two_codes_of_4_bits_share_a_byte_the_first_in_its_low_half() -> None:
    codes = np.array([[1, 2, 15, 0]], np.uint8)
    assert pack(codes, 4).tolist() == [[0x21, 0x0F]]
    assert pack(codes, 8).tolist() == [[1, 2, 15, 0]]


@pytest.mark.parametrize(
    ("scheme", "expected"), [(Scheme(8, 128), 1024 * 8 + 8 * 8 * 4), (Scheme(4, 64, False), 4096 + 8 * 16 * 4 + 8 * 8)]
)
def test_the_size_of_a_weight_is_that_of_its_arrays(scheme: Scheme, expected: int) -> None:
    made = quantize(np.ones((1024, 8), np.float32), scheme)
    points = made.packed_zero_points()
    assert scheme.bytes(1024, 8) == expected
    assert made.packed().nbytes + made.scales.nbytes + (0 if points is None else points.nbytes) == expected
