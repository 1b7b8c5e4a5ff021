"""`edgeformer optimize` for TensorRT: engines beside the other artifacts, or one line and the bundle as it was."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.tensorrt import engines, memory
from edgeformer.exporter.tensorrt.report import read_report
from edgeformer.runtime.bundle import open_bundle
from edgeformer.runtime.identity import graph_hash, this_platform

Tree = Callable[[Path], dict[str, bytes]]
RTX = ("--target", "tensorrt-rtx", "--compute-capability", "8.9")
SMALL = (*RTX, "--batch", "1:2:4", "--capacity", "24", "--q-len", "1:2:8", "--source-len", "1:4:16")


@pytest.fixture
def refused(cli: Callable[..., Any], bundle: Path, tree: Tree) -> Callable[..., str]:
    """A command that is refused, and leaves the bundle and all beside it as they were."""

    def run(*arguments: object, says: tuple[str, ...]) -> str:
        before = tree(bundle.parent)
        message: str = cli("optimize", bundle, *arguments).refused(*says)
        assert tree(bundle.parent) == before
        return message

    return run


def test_engines_stand_beside_the_other_artifacts_and_say_what_they_are_for(
    cli: Callable[..., Any], bundle: Path, tree: Tree
) -> None:
    before = tree(bundle)
    found = cli("optimize", bundle, *SMALL, "--precision", "int8", "--json").ok
    name = "tensorrt-rtx-int8"
    assert found.json["artifact"]["name"] == name
    assert all(check["passed"] for check in found.json["checks"])
    assert found.json["checks"][0]["name"] == "greedy equals PyTorch, on the CPU"
    assert "verifying the typed graphs against PyTorch's golden samples" in found.err
    if not Path("/dev/nvidia0").exists():
        assert "there is no NVIDIA driver here" in found.json["not_run"]
        assert f"built, not run here: {found.json['not_run']}" in found.err
    made = {f"{name}/{file}" for file in ("encoder.plan", "decoder.plan", "report.json", "report.html")}
    assert {file for file, content in tree(bundle).items() if before.get(file) != content} == {"bundle.json", *made}

    opened = open_bundle(bundle)
    artifact, portable = opened.artifact(name), opened.artifact("onnx")
    assert artifact is not None
    assert portable is not None
    engine = artifact.engine
    assert engine is not None
    assert set(artifact.files) == made
    assert (artifact.backend, engine.module, engine.dtype, engine.capacity) == (
        "tensorrt",
        "tensorrt_rtx",
        "float16",
        24,
    )
    assert (engine.compute_capabilities, engine.platform) == (("8.9",), this_platform())
    assert engine.graphs == {role: graph_hash(portable, role) for role in ("encoder", "decoder")}
    assert engine.profiles["decoder"][0] == {
        "batch": (1, 2, 4), "q_len": (1, 2, 8), "n": (1, 1, 8), "source_len": (1, 4, 16)
    }  # fmt: skip
    assert set(engine.memory) == {"encoder", "decoder"}
    flags = (engine.stripped, engine.version_compatible, engine.hardware_compatible, engine.streamable)
    assert flags == (False, False, False, False)
    report = read_report(bundle / name)
    assert {role: len(build.attentions) for role, build in report.builds.items()} == {"encoder": 2, "decoder": 4}
    assert all(build.fused == len(build.attentions) and not build.unused_inputs for build in report.builds.values())


def test_an_interrupt_ends_the_build_and_leaves_the_bundle(
    program: Callable[..., subprocess.Popen[bytes]], bundle: Path, tree: Tree
) -> None:
    before = tree(bundle.parent)
    process = program("optimize", bundle, *SMALL, "--precision", "fp16")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"building the encoder"):
            break
    while not (working := workers(bundle)):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (1, b"", b"error: interrupted\n")
    assert workers(bundle) == []
    assert len(working) == 1
    assert tree(bundle.parent) == before


def workers(bundle: Path) -> list[str]:
    """Processes that build something beside a bundle."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if "tensorrt.worker" in command and os.fspath(bundle.parent) in command:
            found.append(command)
    return found


# Bad input


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*RTX, "--precision", "int3"), ("target tensorrt-rtx has no precision 'int3'; it has: fp16, bf16",)),
        (("--target", "tensorrt-rtx", "--precision", "fp32"), ("tensorrt-rtx", "fp32", "fp16")),
        (("--target", "tensorrt-rtx", "--compute-capability", "9.0"), ("has no compute capability 9.0", "8.9")),
        (("--target", "tensorrt-rtx", "--attention", "plugin"), ("has no attention of the form 'plugin'", "native")),
        ((*RTX, "--capacity", "33"), ("--capacity is 33, and the model has 32 positions: choose 1 to 32",)),
        ((*RTX, "--capacity", "33", "--batch", "5:4:3"), ("--capacity is 33", "--batch goes from 5 by 4 to 3")),
        ((*RTX, "--batch", "1:2"), ("--batch is '1:2', expected LEAST:USUAL:MOST, such as 1:8:64",)),
        ((*RTX, "--workspace", "lots"), ("--workspace is 'lots', expected a number of bytes",)),
        ((*RTX, "--opt-level", "7"), ("--opt-level is 7, expected 0 to 5",)),
        ((*RTX, "--timing-cache", "t", "--version-compatible"), ("no --timing-cache", "no --version-compatible")),
        (
            ("--target", "tensorrt-11"),
            ("tensorrt cannot be loaded here: ", "pip install 'edgeformer[gpu]' 'tensorrt>=11.0,<12.0'"),
        ),
        (("--target", "jetson-orin-jp7.2"), ("tensorrt cannot be loaded here: ", "comes with JetPack", "on the board")),
        (("--target", "ort-cpu", "--capacity", "9"), ("--capacity is for engines, and it has none: leave it out",)),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(
    refused: Callable[..., str], arguments: tuple[str, ...], says: tuple[str, ...]
) -> None:
    refused(*arguments, says=says)


def test_heads_that_no_kernel_takes_are_refused(refused: Callable[..., str], edit: Callable[..., None]) -> None:
    edit(lambda values: values["sizes"].update(head_dim=8))
    refused(*RTX, says=("cannot take heads that are 8 wide", "--allow-unfused"))


def test_a_build_that_does_not_fit_is_refused_before_it_begins(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100_000_000)
    refused(*SMALL, says=("needs about 0.4 GB of memory and 0.1 GB is free",))


def test_a_disk_that_the_plan_fills_leaves_the_bundle(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(engines, "run_build", full)
    refused(*SMALL, says=("No space left on device", "nothing that was there before has changed"))


def test_a_place_that_cannot_be_written_is_refused(
    cli: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(**options: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("edgeformer.exporter.staging.tempfile.mkdtemp", denied)
    cli("optimize", bundle, *SMALL).refused(f"cannot write {bundle}: Permission denied: choose another place")
