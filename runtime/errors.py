"""What can go wrong in a way that a user can act on.

Every message says what went wrong, what was found, what was expected, and what to do. The command line prints these
without a traceback and exits with 1; any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class EdgeformerError(Exception):
    """The root of every error that a user can act on."""


class ProblemsError(EdgeformerError):
    """Several things are wrong at once: the message lists all of them.

    Args:
        subject: what was looked at, as the first words of the message.
        problems: one sentence each, at least one.
    """

    def __init__(self, subject: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        lines = self.problems if len(self.problems) == 1 else tuple(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{subject}: {''.join(lines)}")


class ConfigError(ProblemsError):
    """A model's configuration contradicts itself or asks for what is not implemented."""


class CheckpointError(ProblemsError):
    """A checkpoint folder misses files or tensors, or holds ones that do not fit its configuration."""


class ModuleError(ProblemsError):
    """A module of one's own is not there, or does not offer what export needs."""


class BundleError(ProblemsError):
    """A bundle is missing, damaged, or written by a newer edgeformer."""


class OutputExistsError(EdgeformerError):
    """The output folder holds something that would be lost."""


class WriteError(EdgeformerError):
    """Writing failed (a full disk, a folder without permission); nothing earlier was touched."""


class TargetError(EdgeformerError):
    """The target does not exist, or cannot meet the request."""


class BackendUnavailableError(EdgeformerError):
    """The library or driver that an artifact needs is not installed here."""


class NotEnoughMemoryError(EdgeformerError):
    """What is asked for does not fit into the memory that is free; said before it is taken where that is known."""


class DeviceError(EdgeformerError):
    """The GPU, its driver or a vendor's library failed at work that it had accepted."""


class InputError(EdgeformerError):
    """An input that the model cannot take: empty, too long, or with characters outside its vocabulary."""


class OptionError(EdgeformerError):
    """A generation option that is out of range or not supported."""


class ParityError(EdgeformerError):
    """An artifact does not give what PyTorch gives."""


class BuildError(EdgeformerError):
    """An engine could not be built; nothing earlier was touched."""


class LimitsError(ProblemsError):
    """Limits of an engine's shapes that contradict each other, the model or the target."""
