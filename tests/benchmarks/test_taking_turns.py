from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from taking_turns import Engine, Setting, WorkerError, cpu_seconds, take_turns

# Takes what every worker takes, and notes when it works.
PROGRAM = """
import json, sys
name, log = sys.argv[1:3]
print(json.dumps({"load_seconds": 0.5, "arguments": sys.argv[3:]}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if name == "ends":
        sys.exit(3)
    if name == "refuses":
        print(json.dumps({"error": "not today"}), flush=True)
        continue
    with open(log, "a") as file:
        file.write(name + "\\n")
    reply = {"seconds": 1.0 + command["round"], "cpu_seconds": 0.5, **command}
    print(json.dumps({**reply, "outputs": [name]} if command["outputs"] else reply), flush=True)
"""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(threads=2, batch=64, beams=4, words_file=tmp_path / "words")


def engines(tmp_path: Path, *names: str) -> list[Engine]:
    return [Engine(name, (sys.executable, "-c", PROGRAM, name, str(tmp_path / "log"))) for name in names]


def test_engines_take_turns_and_change_their_order_every_round(tmp_path: Path, setting: Setting) -> None:
    done: list[int] = []
    records = take_turns(engines(tmp_path, "ours", "peer", "other"), setting, 3, done.append)
    turns = (tmp_path / "log").read_text().split()
    assert turns == ["ours", "peer", "other", "other", "peer", "ours", "ours", "peer", "other"]
    assert len(done) == 9
    assert [record.engine for record in records] == ["ours", "peer", "other"]
    assert [record.outputs for record in records] == [["ours"], ["peer"], ["other"]]


def test_a_record_holds_every_round_and_what_the_worker_said_of_itself(tmp_path: Path, setting: Setting) -> None:
    (record,) = take_turns(engines(tmp_path, "ours"), setting, 2)
    assert record.seconds == [1.0, 2.0]
    assert record.cpu_seconds == [0.5, 0.5]
    assert [(r["batch"], r["beams"], r["round"], r["others_cpu_seconds"]) for r in record.rounds] == [
        (64, 4, 0, 0),
        (64, 4, 1, 0),
    ]
    assert record.description["load_seconds"] == 0.5
    assert record.description["arguments"] == ["--threads", "2", "--words", str(setting.words_file)]
    assert record.start_seconds > 0


@pytest.mark.parametrize(
    ("name", "message"), [("refuses", "refuses: not today"), ("ends", "ends ended with exit code 3")]
)
def test_a_worker_that_fails_stops_everything(tmp_path: Path, setting: Setting, name: str, message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        take_turns(engines(tmp_path, "ours", name), setting, 2)


def test_a_worker_that_does_not_start_is_named(tmp_path: Path, setting: Setting) -> None:
    broken = Engine("broken", (sys.executable, "-c", "raise SystemExit(5)"))
    with pytest.raises(WorkerError, match="broken ended with exit code 5"):
        take_turns([*engines(tmp_path, "ours"), broken], setting, 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
def test_processor_time_is_the_process_s_own() -> None:
    while time.process_time() < 0.1:
        pass
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.1)


def test_a_process_that_is_gone_takes_no_time() -> None:
    assert cpu_seconds(2**22 + 1) == 0
