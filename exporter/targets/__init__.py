"""What each target can do, as data, and what is refused before any work."""

from __future__ import annotations

from edgeformer.exporter.targets.capabilities import FEATURES, Feature, capabilities
from edgeformer.exporter.targets.choosing import PORTABLE_SET, Choice, check_model, choose_target, find_target
from edgeformer.exporter.targets.limits import HEAD_SIZES, check_version, with_precision
from edgeformer.exporter.targets.rows import TARGETS, Target

__all__ = [
    "FEATURES",
    "HEAD_SIZES",
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
    "with_precision",
]
