"""What a fresh process and a probe say, and files out of the page cache."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from edgeformer.cli.benching import page_cache, probe
from edgeformer.cli.benching.ceilings import measure_ceilings
from edgeformer.cli.benching.fresh import Request, growth
from edgeformer.cli.benching.page_cache import drop
from edgeformer.cli.benching.starts import ProcessError, asked, measure_starts
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.bundle import read_manifest


def request_for(bundle: Path, artifact: str = "onnx") -> Request:
    config = GenerationConfig(min_new_tokens=3, max_new_tokens=3)
    return Request(str(bundle), artifact, 1, "steps", [[3, 4, 5]], dataclasses.asdict(config))


def test_a_fresh_process_tells_its_load_time_and_peak(tiny_bundle: Path) -> None:
    manifest = read_manifest(tiny_bundle)
    artifact = next(artifact for artifact in manifest.artifacts if artifact.name == "onnx")
    found = measure_starts(request_for(tiny_bundle), manifest, artifact)
    warm = found["load"]["warm"]
    assert 0 < warm["load_seconds"] < warm["first_answer_seconds"]
    assert found["memory"]["host_peak_bytes"] > 20_000_000
    assert found["memory"]["device_peak_bytes"] == "not used"
    assert (found["load"]["cold"] == "not supported") == ("cold_reason" in found["load"])


def test_a_process_that_fails_is_told_with_its_own_words(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "edgeformer.cli.benching.fresh"]
    with pytest.raises(ProcessError, match="no artifact 'fast'"):
        asked(command, dataclasses.asdict(request_for(tiny_bundle, "fast")), {})


def test_files_leave_the_page_cache_or_the_reason_is_told(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(100_000))
    reason = drop([path])
    assert reason is None or "weights" in reason
    assert len(path.read_bytes()) == 100_000


def test_a_file_that_stays_cached_makes_no_cold_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"1")
    monkeypatch.setattr(page_cache, "cached", lambda descriptor, size: True)
    assert drop([path]) == "weights stays in the page cache"


def test_memory_grows_from_its_first_sample() -> None:
    assert growth([100.0, None, 700.0, 300.0]) == 600
    assert growth([None]) == 0


def test_ceilings_are_measured_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeformer.cli.benching.ceilings.FAR", 4 << 20)
    found = measure_ceilings(1, [1 << 20])
    assert set(found.read_bytes_per_second) == {1 << 20, 4 << 20}
    assert all(rate > 1e7 for rate in found.read_bytes_per_second.values())
    assert found.flops_per_second > 1e7
    assert found.threads == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_every_thread_reads_its_part(threads: int) -> None:
    assert probe.read_rate(1 << 16, threads) > 0
