"""A record: one JSON file for a run, with all that its figures depend on, and every sample that they were made from."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.artifacts import Setup
from edgeformer.cli.benching.ceilings import Ceilings
from edgeformer.cli.benching.grid import Plan
from edgeformer.cli.benching.intervals import CONFIDENCE, RESAMPLES
from edgeformer.cli.benching.origins import bundle_hash, commit
from edgeformer.cli.benching.schema import problems
from edgeformer.cli.benching.telemetry import facts
from edgeformer.cli.benching.telemetry.counters import NOT_MEASURED
from edgeformer.cli.machine import this_machine
from edgeformer.cli.requirements import installed_versions
from edgeformer.runtime.bundle import read_manifest
from edgeformer.runtime.cores import usable_cores
from edgeformer.runtime.errors import ProblemsError

SCHEMA_VERSION = 1
ORDER = "each round takes the cells in a random order of its own; artifacts one after another"
OUTLIERS = "kept in every figure; far_out counts calls above the third quartile by more than 3 times the quartiles' gap"
INTERVALS = f"{CONFIDENCE:.0%}, by {RESAMPLES} resamples of calls; null where too few samples bound it"


class RecordError(ProblemsError):
    """A file is no record of `edgeformer bench`, or a damaged or newer one."""


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON Schema of records, as it is shipped."""
    text = (files("edgeformer.cli.benching") / "record.schema.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def read_record(path: Path) -> dict[str, Any]:
    """Read and check a record.

    Raises:
        RecordError: it cannot be read, is newer than this program, or is not what the schema says.
    """
    subject = f"record {path}"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(subject, [f"it cannot be read: {error.strerror or error}"]) from error
    except ValueError as error:
        raise RecordError(subject, [f"it is not JSON: {error}"]) from error
    version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(subject, [f"its schema is {version}, this program reads {SCHEMA_VERSION}: update edgeformer"])
    if found := list(problems(values, schema(), schema()["$defs"])):
        more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
        raise RecordError(subject, [*found[:10], *more, "is it what `edgeformer bench -o` wrote?"])
    record: dict[str, Any] = values
    return record


def make_record(setup: Setup, artifacts: Sequence[dict[str, Any]], prompts: str) -> dict[str, Any]:
    """The record of a run.

    Args:
        setup: what was measured.
        artifacts: what was found.
        prompts: what the inputs are, in words.
    """
    manifest = read_manifest(setup.folder)
    return {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "bundle": {
            "path": str(setup.folder),
            "sha256": bundle_hash(setup.folder),
            "model_type": manifest.model_type,
            "edgeformer_version": manifest.edgeformer_version,
        },
        "commit": commit(),
        "versions": installed_versions(),
        "machine": json.loads(json.dumps(dataclasses.asdict(this_machine()))),
        "facts": facts(),
        "settings": settings(setup.plan, prompts),
        "ceilings": ceilings_values(setup.ceilings),
        "noisy": any(artifact["noise"]["noisy"] for artifact in artifacts),
        "artifacts": list(artifacts),
    }


def settings(plan: Plan, prompts: str) -> dict[str, Any]:
    return {
        "threads": plan.cores.threads,
        "spin": plan.cores.spin,
        "cores": usable_cores(),
        "rounds": plan.rounds,
        "warmup": plan.warmup,
        "seed": plan.seed,
        "inputs": len(plan.sources),
        "prompts": prompts,
        "order": ORDER,
        "outliers": OUTLIERS,
        "intervals": INTERVALS,
    }


def ceilings_values(ceilings: Ceilings | None) -> dict[str, Any] | str:
    if ceilings is None:
        return NOT_MEASURED
    rates = {str(size): rate for size, rate in ceilings.read_bytes_per_second.items()}
    return {**dataclasses.asdict(ceilings), "read_bytes_per_second": rates}
