"""What each target can do, as data, and what is refused before any work."""

from __future__ import annotations

from edgeformer.exporter.targets.capabilities import FEATURES, Feature, capabilities
from edgeformer.exporter.targets.choosing import Choice, check_model, check_version, choose_target, find_target
from edgeformer.exporter.targets.rows import PORTABLE_SET, TARGETS, Target

__all__ = [
    "FEATURES",
    "PORTABLE_SET",
    "TARGETS",
    "Choice",
    "Feature",
    "Target",
    "capabilities",
    "check_model",
    "check_version",
    "choose_target",
    "find_target",
]
