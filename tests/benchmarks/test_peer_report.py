from __future__ import annotations

from typing import Any

import pytest
from peer_report import Contender, least_cosine, markdown, share_of_firsts, share_of_tokens, summarize
from peer_rounds import Ran, Record
from peer_works import Planned

CONTENDERS = (
    Contender("ours fp32", True, 32, 100),
    Contender("ours int8", True, 8, 30),
    Contender("slow fp32", False, 32, 100),
    Contender("quick fp32", False, 32, 100),
    Contender("none fp32", False, 32, 100),
)
DECODING = Planned("decode", {}, 10, "tokens", after_first=True)


def ran(outputs: list[list[Any]], *seconds: float) -> Ran:
    replies = [{"seconds": s, "first_seconds": 0.5, "peak_rss_mib": 7.0} for s in seconds]
    described = {"load_seconds": 0.1, "peak_rss_mib": 5.0, "versions": {}}
    return Ran(1.0, described, {"decode": Record(replies, outputs)})


def summary() -> dict[str, Any]:
    runs = {
        "ours fp32": ran([[1, 2]], 1.5, 1.7),
        "ours int8": ran([[1, 3]], 1.0, 1.0),
        "slow fp32": ran([[1, 2]], 4.5, 2.5),
        "quick fp32": ran([[9, 2]], 1.0, 1.0),
        "none fp32": Ran(1.0, {}, {"decode": Record(cannot="no batches")}),
    }
    return summarize(DECODING, CONTENDERS, runs, ["transformers eager", "ours fp32"], "decoder")


def test_the_first_token_s_time_is_taken_off_before_ratios() -> None:
    engines = summary()["engines"]
    assert engines["ours fp32"]["seconds"]["median"] == pytest.approx(1.1)
    assert engines["ours fp32"]["per_second"] == pytest.approx(10 / 1.1)
    assert engines["slow fp32"]["ratio"] == pytest.approx({"median": 3 / 1.1, "least": 2 / 1.2, "most": 4.0})


def test_the_fastest_of_each_side_are_compared_at_the_same_bits() -> None:
    (best,) = summary()["best"]  # nobody else has 8 bits
    assert (best["bits"], best["ours"], best["peer"]) == (32, "ours fp32", "quick fp32")
    assert best["ratio"]["median"] == pytest.approx(0.5 / 1.1)


def test_outputs_are_compared_with_the_first_reference_that_did_the_work() -> None:
    found = summary()
    assert found["reference"] == "ours fp32"
    assert found["engines"]["slow fp32"]["agreement"] == {"same_tokens": 100, "same_first_tokens": 100}
    assert found["engines"]["ours int8"]["agreement"] == {"same_tokens": 50, "same_first_tokens": 100}
    assert found["engines"]["quick fp32"]["agreement"] == {"same_tokens": 0, "same_first_tokens": 0}


def test_tokens_behind_the_first_difference_do_not_count() -> None:
    assert share_of_tokens([[1, 9, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 7, 8]]) == pytest.approx(500 / 8)
    assert share_of_firsts([[1, 9], [4, 6]], [[1, 2], [5, 6]]) == 50


def test_the_worst_sentence_s_cosine_is_told() -> None:
    assert least_cosine([[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [1.0, 1.0]]) == pytest.approx(0.5**0.5)


def test_the_page_has_what_was_not_done_with_its_reason() -> None:
    engine = {"bits": 32, "disk_bytes": 2e6, "load_seconds": 0.1, "start_seconds": 1.0, "loaded_rss_mib": 5.0,
              "versions": {"peer": "1.0"}}  # fmt: skip
    report = {
        "kind": "decoder", "shape_name": "tiny", "threads": 2, "load_average": 0.5, "rounds": 2,
        "machine": {"cpu": "a CPU", "cores": 2}, "engines": {c.name: engine for c in CONTENDERS},
        "missing": {"other": "cannot be installed | here"}, "works": [summary()],
    }  # fmt: skip
    page = markdown(report)
    assert "| none fp32 | decode | no batches |" in page
    assert "| other | all | cannot be installed \\| here |" in page
    assert "| slow fp32 | 32 | 3000.0 (2000.0-4000.0) | 3.3 | 2.73 (1.67-4.00) | 100.0 | 100.0 | 7 |" in page
    assert "| decode | 32 | ours fp32 | quick fp32 | 0.45 (0.42-0.50) |" in page
