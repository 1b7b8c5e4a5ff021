"""Records: the schema that is shipped, what reads them, and what is said of damaged ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.benching.origins import bundle_hash, commit
from edgeformer.cli.benching.records import RecordError, read_record, schema
from edgeformer.cli.benching.schema import problems

MakeRecord = Callable[..., dict[str, Any]]

# What a test changes in a good record, and how the message names it.
DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a field is missing": (lambda r: r.pop("bundle"), "has no 'bundle'"),
    "a field is unknown": (lambda r: r.update(extra=1), "extra is not known"),
    "a number is text": (lambda r: r["settings"].update(rounds="ten"), "settings.rounds is 'ten', expected integer"),
    "zero calls": (lambda r: r["artifacts"][0]["cells"][0].update(calls=0), "calls is 0, expected at least 1"),
    "energy is none": (lambda r: r["artifacts"][0]["cells"][0].update(energy=None), "cells[0].energy is None"),
    "a zero for what is not supported": (lambda r: r["artifacts"][0]["load"].update(cold=0), "load.cold is 0"),
    "an unknown kind of noise": (
        lambda r: r["artifacts"][0]["noise"]["findings"].append({"kind": "moon", "said": "full"}),
        "findings[0].kind is 'moon'",
    ),
    "true is no number": (lambda r: r["ceilings"].update(threads=True), "threads is True"),
}


def test_a_good_record_has_no_problems(make_record: MakeRecord, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(make_record()))
    assert read_record(path) == json.loads(json.dumps(make_record()))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_refused_and_the_place_is_named(
    make_record: MakeRecord, tmp_path: Path, damage: str
) -> None:
    change, message = DAMAGES[damage]
    record = json.loads(json.dumps(make_record()))
    change(record)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(RecordError) as error:
        read_record(path)
    assert message in str(error.value)


@pytest.mark.parametrize("damage", ["none", *DAMAGES])
def test_the_schema_means_to_others_what_it_means_here(make_record: MakeRecord, damage: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    record = json.loads(json.dumps(make_record()))
    if damage != "none":
        DAMAGES[damage][0](record)
    validator = jsonschema.Draft202012Validator(schema())
    jsonschema.Draft202012Validator.check_schema(schema())
    assert validator.is_valid(record) == (damage == "none")
    assert (not list(problems(record, schema(), schema()["$defs"]))) == (damage == "none")


def test_all_problems_are_named_at_once(make_record: MakeRecord, tmp_path: Path) -> None:
    record = copy.deepcopy(make_record())
    record["commit"] = 5
    record["machine"] = []
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(RecordError) as error:
        read_record(path)
    assert "commit is 5" in str(error.value)
    assert "machine is []" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not JSON"), ("[]", "expected object"), ('{"schema_version": 2}', "update edgeformer")],
)
def test_what_is_no_record_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=message):
        read_record(path)
    with pytest.raises(RecordError, match="cannot be read"):
        read_record(tmp_path / "nowhere.json")


def test_a_bundle_hash_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text('{"files": {"a": {"sha256": "1"}}}')
    before = bundle_hash(tmp_path)
    (tmp_path / "bundle.json").write_text('{"files": {"a": {"sha256": "2"}}}')
    assert before != bundle_hash(tmp_path)
    assert len(before) == 64


def test_a_commit_is_one_or_is_said_to_be_unknown() -> None:
    found = commit()
    assert found == "not known" or len(found.removesuffix("-changed")) == 40
