"""What torch says of a module that it cannot export: one line and the place in the module; all else in a file."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from edgeformer.exporter.onnx_graphs import UntraceableError
from edgeformer.runtime.errors import ModuleError

LIBRARIES = (Path(torch.__file__).parent, Path(__file__).parent)  # whose lines say nothing of a user's module
COLORS = re.compile(r"\x1b\[[0-9;]*m")
ADVICE = (
    "`encode` and `step` must be tensor operations alone, without branches or loops over what tensors hold: "
    "write `torch.where` for an `if`, and shapes instead of `.item()` (docs/adding-a-family.md)"
)


@contextlib.contextmanager
def explained(subject: str, output: Path) -> Iterator[None]:
    """Make one message of torch's failure to export a module.

    Args:
        subject: the module's name.
        output: the bundle to be written; all that torch said goes into `OUTPUT.export-log.txt` beside it.

    Raises:
        ModuleError: torch cannot export the module.
    """
    try:
        yield
    except UntraceableError as error:
        output = output.resolve()
        log = output.with_name(f"{output.name}.export-log.txt")
        text = COLORS.sub("", "".join([*traceback.format_exception(error), "\n", error.said]))
        with contextlib.suppress(OSError):  # it is chained to the error as well
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(text, encoding="utf-8")
        cause = first_cause(error)
        said = next(iter(COLORS.sub("", str(cause)).strip().splitlines()), type(cause).__name__)
        where = f", at {place}" if (place := place_of(cause)) else ""
        raise ModuleError(subject, [f"torch cannot export it{where}: {said}. {ADVICE}. All of it: {log}"]) from error


def first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def place_of(error: BaseException) -> str | None:
    """The last line of an error's traceback that is neither torch's nor this package's; None where there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not of_library(Path(frame.filename))]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def of_library(path: Path) -> bool:
    return not path.is_absolute() or any(folder in path.parents for folder in LIBRARIES)
