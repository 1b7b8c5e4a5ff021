"""`edgeformer plan`."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.benching.ceilings import Ceilings
from edgeformer.cli.main import app
from edgeformer.cli.sizing import this_machine
from edgeformer.cli.sizing.__main__ import BEGIN, END
from edgeformer.cli.sizing.tables import devices_markdown
from edgeformer.runtime import machine_memory


def test_the_table_says_what_each_artifact_takes_and_what_fits(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    result = cli("plan", tiny_bundle, "--batch", 4, "--capacity", 20, "--free-memory", "1G").ok
    heading, _, *rows = [line for line in result.out.splitlines() if line]
    assert heading.split()[:3] == ["artifact", "rows", "tokens"]
    assert [row.split()[:3] for row in rows[:-1]] == [
        [name, "4", "20"] for name in ("onnx", "ort-cpu-fp32", "ort-cpu-int8")
    ]
    assert all(" yes " in row for row in rows[:-1])
    assert rows[-1] == "free: memory as given"
    assert result.err == ""


def test_what_does_not_fit_is_no_error_here(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    out = cli("plan", tiny_bundle, "--artifact", "onnx", "--free-memory", "10K").ok.out
    assert " NO " in out
    assert "ort-cpu" not in out


def test_json_has_the_numbers(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = cli(
        "plan", tiny_bundle, "--artifact", "ort-cpu-fp32", "--batch", 3, "--free-memory", "64M", "--json"
    ).ok.json
    (plan,) = found["plans"]
    assert plan["load"] == {"batch": 3, "capacity": 32, "source_len": 32}  # the model has no more positions
    assert plan["total"] == sum(plan["needs"].values())
    assert plan["free"] == {"bytes": 64 << 20, "of": "memory as given"}
    assert plan["fits"] is True
    assert plan["largest_batch"] > 3


def test_without_a_size_this_machine_is_asked(
    cli: Callable[..., Any], tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "available_memory", lambda: 123_000_000)
    assert "123.0 MB" in cli("plan", tiny_bundle).ok.out
    monkeypatch.setattr(machine_memory, "available_memory", lambda: None)
    assert " unknown " in cli("plan", tiny_bundle).ok.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "batch is 0, expected at least 1"),
        (["--capacity", "33"], "capacity is 33, artifact onnx takes up to 32"),
        (["--source-len", "33"], "source_len is 33, artifact onnx takes up to 32"),
        (["--free-memory", "lots"], "--free-memory is 'lots', expected a number of bytes"),
        (["--artifact", "none"], "has no artifact 'none'; it has: onnx, ort-cpu-fp32, ort-cpu-int8"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: list[str], said: str
) -> None:
    cli("plan", tiny_bundle, *arguments).refused(said)


# For a device


@pytest.fixture
def config_alone(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint's folder that holds config.json and nothing else."""
    shutil.copy(tiny_checkpoint / "config.json", tmp_path)
    return tmp_path


def test_a_device_is_planned_for_by_config_json_alone(cli: Callable[..., Any], config_alone: Path) -> None:
    result = cli("plan", config_alone, "--device", "jetson-orin-nano-8g", "--batch", 4, "--capacity", 20).ok
    assert result.out.startswith("transformer, encoder-decoder, 0.0 million weights by its config.json")
    assert "Jetson Orin Nano 8 GB: memory 8.0 GB, 6.5 GB for a model" in result.out
    assert "4 rows of 20 tokens each, sources of 32" in result.out
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines if " yes " in line] == ["fp16", "bf16", "int8", "int4"]
    assert any(line.startswith("fp16: of what fits it rounds least") for line in lines)
    assert "DS-11105-001" in result.out
    assert f"  edgeformer export {config_alone} -o BUNDLE" in result.out
    assert "--target jetson-orin-jp7.2 --precision fp16 --batch 4 --capacity 20 --source-len 32" in result.out


def test_recommended_commands_are_commands(cli: Callable[..., Any], config_alone: Path) -> None:
    """Every option of them is one that the program has."""
    from typer.main import get_command

    commands: Any = get_command(app)
    for device in ("jetson-orin-nano-8g", "rtx-4090", "raspberry-pi-5-8g"):
        found = cli("plan", config_alone, "--device", device, "--json").ok.json["recommended"]["commands"]
        assert len(found) == 3
        for words in (shlex.split(command, comments=True) for command in found):
            command = commands.commands[words[1]]
            command = command.commands["run"] if hasattr(command, "commands") else command
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("-")} <= known, words


def test_json_of_a_device_has_every_number(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    """A bundle's own artifacts count as they are."""
    found = cli("plan", tiny_bundle, "--device", "raspberry-pi-5-8g", "--json").ok.json
    assert found["device"]["bandwidth"] == 17e9
    assert (found["target"], found["model"]["kind"]) == ("ort-cpu", "encoder-decoder")
    plans = {plan["precision"]: plan for plan in found["precisions"]}
    assert {name: plan["built"] for name, plan in plans.items()} == {
        "fp32": "ort-cpu-fp32", "int8": "ort-cpu-int8", "int8-rows": None, "int4": None,
    }  # fmt: skip
    artifact = cli("plan", tiny_bundle, "--artifact", "ort-cpu-fp32", "--json").ok.json["plans"][0]
    assert plans["fp32"]["needs"] == {**artifact["needs"], "total": artifact["total"]}
    speed = plans["fp32"]["tokens_per_second"]
    assert speed["low"] < speed["high"] < speed["at_most"]
    assert found["recommended"]["precision"] == "fp32"


def test_this_machine_is_measured(cli: Callable[..., Any], tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(threads: int, sizes: list[int]) -> Ceilings:
        return Ceilings(threads, {**dict.fromkeys(sizes, 5e10), 512 << 20: 2e10}, 1e11)

    monkeypatch.setattr(this_machine, "measure_ceilings", measured)
    found = cli("plan", tiny_bundle, "--device", "this", "--json").ok.json
    assert (found["device"]["bandwidth"], found["device"]["arithmetic"]) == (2e10, {"fp32": 1e11})
    step = found["precisions"][0]["step"]
    assert step["reading"] == pytest.approx(step["seconds"])
    assert step["by"] == "bandwidth"


def test_an_encoder_is_planned_for_calls(cli: Callable[..., Any], encoder_checkpoint: Callable[[str], Path]) -> None:
    from ..encoder_checkpoints import ENCODERS

    out = cli("plan", encoder_checkpoint(next(iter(ENCODERS))), "--device", "rtx-4090", "--batch", 2).ok.out
    assert "texts/s at most" in out
    assert "tokens/s" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "jetson-orin-nano"], "did you mean jetson-orin-nano-8g?"),
        (["--device", "t4", "--target", "jetson-orin-jp6"], "--target is jetson-orin-jp6, t4 has: tensorrt-11"),
        (["--device", "t4", "--target", "tensorrt"], "there is no target 'tensorrt'"),
        (["--device", "t4", "--artifact", "onnx"], "--artifact is for what a bundle holds"),
        (["--target", "ort-cpu"], "--target is for a device"),
        (["--device", "t4", "--capacity", "33"], "--capacity is 33, expected 1 to 32"),
    ],
)
def test_what_makes_no_sense_of_a_device_is_refused(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: list[str], said: str
) -> None:
    cli("plan", tiny_bundle, *arguments).refused(said)


def test_what_is_no_model_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("plan", tmp_path, "--device", "t4").refused("it has neither bundle.json nor config.json")
    cli("plan", tmp_path / "none").refused("there is no such folder; expected a bundle, or a checkpoint's folder")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lama"}))
    cli("plan", tmp_path, "--device", "t4").refused("model_type is 'lama'; the nearest is llama; known: ")


def test_the_documented_table_of_devices_is_the_one_in_use() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == devices_markdown()
