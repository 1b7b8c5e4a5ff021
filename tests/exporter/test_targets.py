"""A target that does not exist, or cannot do what is asked, is refused with what is nearest."""

from __future__ import annotations

import pytest

from edgeformer.exporter.targets import TARGETS, find_target
from edgeformer.runtime.backends import backends
from edgeformer.runtime.errors import TargetError


def test_a_target_comes_with_its_first_precision_unless_another_is_asked_for() -> None:
    target, precision = find_target("ort-cpu")
    assert (target.name, target.backend, precision) == ("ort-cpu", "ort-cpu", "fp32")
    assert find_target("ort-cpu", "int8") == (target, "int8")


def test_a_target_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(TargetError, match="there is no target 'ort_cpu'; known: .*ort-cpu.*; did you mean ort-cpu?"):
        find_target("ort_cpu")
    with pytest.raises(TargetError) as caught:
        find_target("zzz")
    assert "did you mean" not in str(caught.value)


def test_a_precision_that_it_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(TargetError, match="target ort-cpu has no precision 'int3'; it has: fp32, int8"):
        find_target("ort-cpu", "int3")


def test_every_target_says_what_it_is_and_where_it_has_run() -> None:
    for name, target in TARGETS.items():
        assert target.name == name
        assert target.backend in backends()
        assert target.precisions
        assert target.attention
        assert target.has_run
