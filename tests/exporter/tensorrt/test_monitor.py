"""Progress is a fraction that never falls, whatever phases come up inside one another."""

from __future__ import annotations

from edgeformer.exporter.tensorrt.monitor import Phases


def test_a_phase_inside_a_step_counts_as_part_of_it() -> None:
    phases = Phases()
    phases.start("build", None, 4)
    phases.step("build", 0)
    assert phases.fraction == 1 / 4
    phases.start("optimize", "build", 2)
    phases.step("optimize", 0)
    assert phases.fraction == 1 / 4 + 1 / 8
    phases.start("fuse", "optimize", 2)
    phases.step("fuse", 0)
    assert phases.fraction == 1 / 4 + 1 / 8 + 1 / 16
    phases.finish("fuse")
    phases.finish("optimize")
    phases.step("build", 3)
    assert phases.fraction == 1.0


def test_the_fraction_never_falls_and_never_passes_one() -> None:
    phases, seen = Phases(), []
    phases.start("build", None, 2)
    for name, steps in (("one", 3), ("two", 1), ("one", 5)):  # a name may come again
        phases.start(name, "build", steps)
        for number in range(steps + 2):  # more steps than were told
            phases.step(name, number)
            seen.append(phases.fraction)
        phases.finish(name)
    assert seen == sorted(seen)
    assert 0 < seen[0] <= seen[-1] <= 1


def test_a_step_of_a_phase_that_no_one_began_is_let_pass() -> None:
    phases = Phases()
    phases.step("unknown", 3)
    phases.finish("unknown")
    assert phases.fraction == 0.0
