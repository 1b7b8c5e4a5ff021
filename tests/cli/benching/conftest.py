"""Machines that are folders of files, and records that no run made."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from edgeformer.cli.benching.calls import Call
from edgeformer.cli.benching.grid import Cell
from edgeformer.cli.benching.summaries import summarize
from edgeformer.runtime import GenerationConfig

QUIET = {"noisy": False, "findings": [], "other_cores": 0.01, "stolen_share": 0.0}
MACHINE = {"cpu": "A processor", "cores": 4, "os": "Linux", "python": "3.12.1", "jetson": None}


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Writes a machine's files below a folder, and returns that folder."""

    def write(files: Mapping[str, str]) -> Path:
        root = tmp_path / "machine"
        root.mkdir(exist_ok=True)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


def draw_calls(seconds: float, count: int, seed: int, *, tokens: int = 16, batch: int = 1) -> list[Call]:
    """Calls of about so many seconds, spread by 3 %, of which a fifth is the first token."""
    rng, calls, began = random.Random(seed), [], 0.0
    for _ in range(count):
        took = seconds * rng.lognormvariate(0, 0.03)
        step = 0.8 * took / (tokens - 1)
        steps = tuple(step * rng.lognormvariate(0, 0.05) for _ in range(tokens - 1))
        calls.append(Call(began, took, took / 5, steps, tokens * batch))
        began += took
    return calls


@pytest.fixture
def make_record() -> Callable[..., dict[str, Any]]:
    """A record of one artifact with batches of 1 and 8: calls of about so many seconds each, or those given."""

    def make(
        seconds: float = 0.02,
        *,
        seed: int = 0,
        count: int = 60,
        artifact: str = "ort-cpu-fp32",
        calls: Mapping[int, Sequence[Call]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        cells = []
        for batch in (1, 8):
            cell = Cell(batch, 16, GenerationConfig(min_new_tokens=16, max_new_tokens=16))
            drawn = calls.get(batch) or draw_calls(seconds * (1 + batch / 10), count, seed + batch, batch=batch)
            share = {"bytes": 2_000_000, "flops": 1_000_000 * batch, "bytes_per_second": 2e9,
                     "flops_per_second": 1e9 * batch, "bandwidth_share": 0.2, "compute_share": 0.1}  # fmt: skip
            energy = {"joules_per_token": 0.02 / batch, "watts": 15.0, "seconds": 2.0, "calls": 99, "tokens": 1584,
                      "counters": ["rapl.package-0"]}  # fmt: skip
            roofline = {"step": share, "first_token": "not supported"}
            cells.append({**summarize(cell, drawn, 0.0), "roofline": roofline, "energy": energy})
        start = {"load_seconds": 0.4, "first_answer_seconds": 0.9}
        telemetry = {
            "times": [0.0, 0.1, 0.2],
            "counters": [
                {"name": "rapl.package-0", "unit": "J", "kind": "energy", "values": [10.0, 11.5, 13.0]},
                {"name": "cpu.clock", "unit": "MHz", "kind": "clock", "values": [3000.0, None, 3001.0]},
                {"name": "gpu", "values": "not supported", "reason": "nvidia-ml-py is not installed"},
            ],
            "overhead": 0.001,
        }
        settings = {"threads": 1, "cores": 4, "rounds": count, "warmup": 2, "seed": 0, "inputs": 12,
                    "prompts": "random", "order": "random", "outliers": "kept", "intervals": "95%"}  # fmt: skip
        rates = {"2000000": 5e10, "536870912": 1e10}
        return {
            "schema_version": 1,
            "created": "2026-01-02T03:04:05+00:00",
            "bundle": {"path": "b", "sha256": "0" * 64, "model_type": "transformer", "edgeformer_version": "0.1.0"},
            "commit": "1" * 40,
            "versions": {"edgeformer": "0.1.0", "numpy": "2.4.6"},
            "machine": dict(MACHINE),
            "facts": {"cpu_governor": "performance", "cpu_boost": "not supported"},
            "settings": settings,
            "ceilings": {"threads": 1, "read_bytes_per_second": rates, "flops_per_second": 1e11},
            "noisy": False,
            "artifacts": [
                {
                    "artifact": artifact,
                    "target": "ort-cpu",
                    "precision": "fp32",
                    "backend": "ort-cpu",
                    "load": {"cold": "not supported", "warm": start, "cold_reason": "it stays in the page cache"},
                    "memory": {"host_peak_bytes": 100_000_000, "device_peak_bytes": "not used"},
                    "weights": {"decoder": {"bytes": 2_000_000, "count": 500_000, "head": 1000}},
                    "cells": cells,
                    "noise": dict(QUIET),
                    "telemetry": telemetry,
                }
            ],
        }  # fmt: skip

    return make
