"""What an artifact's record says of its profiles and graphs: checked, and read as bounds."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer.runtime.backends import Bounds
from edgeformer.runtime.bundle import Artifact, Bundle, Engine
from edgeformer.runtime.errors import BackendUnavailableError, BundleError
from edgeformer.runtime.identity import graph_hash


def record_of(artifact: Artifact) -> Engine:
    """What its plans were built with and for, which `fitness` has seen to be there."""
    if artifact.engine is None:
        raise BackendUnavailableError(f"artifact {artifact.name} holds no engines")
    return artifact.engine


PROFILES = {
    "encoder": (1, "one profile of the encoder"),
    "decoder": (2, "two profiles of the decoder, for prefill and decoding"),
}


def check_profiles(name: str, record: Engine, roles: Sequence[str]) -> None:
    """Refuse profiles that cannot serve rows that grow token by token and leave one by one.

    Raises:
        BundleError: with every dimension that does not begin at 1, or the profile that is missing.
    """
    problems = [
        f"profile {number} of the {role} takes {dimension} from {profile[dimension][0]}, expected from 1"
        for role, several in record.profiles.items()
        for number, profile in enumerate(several)
        for dimension in ("batch", "q_len", "n")
        if dimension in profile and profile[dimension][0] > 1
    ]
    if any(len(record.profiles.get(role, ())) != PROFILES[role][0] for role in roles):
        problems.append(f"expected {', and '.join(PROFILES[role][1] for role in reversed(roles))}")
    if problems:
        raise BundleError(f"artifact {name}", [*problems, "optimize the bundle anew"])


def check_graphs(bundle: Bundle, name: str, record: Engine) -> None:
    """Refuse plans that were built from other graphs than the bundle's.

    Raises:
        BundleError: naming both sides, of each role.
    """
    portable = bundle.artifact("onnx")
    if portable is None:
        return
    now = {role: graph_hash(portable, role) for role in portable.graphs}
    if problems := [
        f"the {role}'s plan was built from graph {built[:12]}, the bundle's is {now[role][:12]}"
        for role, built in record.graphs.items()
        if now.get(role, built) != built
    ]:
        raise BundleError(f"artifact {name} of bundle {bundle.folder}", [*problems, "optimize the bundle anew"])


def bounds_of_profiles(record: Engine) -> Bounds:
    """The most that all profiles take together."""
    profiles = [profile for several in record.profiles.values() for profile in several]
    return Bounds(
        batch=min(profile["batch"][2] for profile in profiles),
        capacity=record.capacity or None,
        source_len=min((profile["source_len"][2] for profile in profiles if "source_len" in profile), default=None),
    )


def widest_step(record: Engine) -> int:
    """Tokens of each row that a step takes at most."""
    return record.profiles["decoder"][0]["q_len"][2]


def most_wanted(record: Engine) -> int:
    """Positions of each row whose logits a step gives at most."""
    return record.profiles["decoder"][0]["n"][2]
