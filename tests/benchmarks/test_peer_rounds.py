from __future__ import annotations

import sys
from pathlib import Path

from peer_rounds import run_rounds
from taking_turns import Engine

# Speaks the protocol of peers/answering.py, and notes when it works.
PROGRAM = """
import json, sys
name, log = sys.argv[1:3]
if name == "broken":
    print(json.dumps({"error": "no such format"}), flush=True)
    sys.exit()
print(json.dumps({"load_seconds": 0.5, "arguments": sys.argv[3:]}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if name == "ends":
        sys.exit(3)
    if name == "lacking" and command["work"] == "b":
        print(json.dumps({"cannot": "no b"}), flush=True)
        continue
    with open(log, "a") as file:
        file.write(name + command["work"] + " ")
    print(json.dumps({"seconds": 1.0, "first_seconds": None, "outputs": [[7]]}), flush=True)
"""


def run(tmp_path: Path, *names: str) -> tuple[object, ...]:
    engines = [Engine(name, (sys.executable, "-c", PROGRAM, name, str(tmp_path / "log"))) for name in names]
    return run_rounds(engines, ["a", "b"], tmp_path / "works", 2, 2)


def test_engines_alternate_within_each_work(tmp_path: Path) -> None:
    ran, missing = run(tmp_path, "x", "y")
    assert (tmp_path / "log").read_text().split() == ["xa", "ya", "ya", "xa", "xb", "yb", "yb", "xb"]
    assert missing == {}
    assert ran["x"].records["a"].outputs == [[7]]
    assert [reply["seconds"] for reply in ran["y"].records["b"].rounds] == [1.0, 1.0]
    assert ran["x"].description["arguments"] == ["--threads", "2", "--work", str(tmp_path / "works")]


def test_what_one_cannot_do_the_others_do(tmp_path: Path) -> None:
    ran, _ = run(tmp_path, "lacking", "y")
    assert ran["lacking"].records["b"].cannot == "no b"
    assert len(ran["lacking"].records["a"].rounds) == 2
    assert len(ran["y"].records["b"].rounds) == 2


def test_one_that_ends_is_left_out_of_what_follows(tmp_path: Path) -> None:
    ran, _ = run(tmp_path, "ends", "y")
    assert {record.cannot for record in ran["ends"].records.values()} == {"ends ended with exit code 3"}
    assert len(ran["y"].records["b"].rounds) == 2


def test_one_that_does_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    ran, missing = run(tmp_path, "broken", "y")
    assert missing == {"broken": "no such format"}
    assert list(ran) == ["y"]
