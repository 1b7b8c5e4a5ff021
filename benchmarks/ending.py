"""How a benchmark ends: with what it found, or with one line that says why not."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from edgeformer.runtime.errors import EdgeformerError


def end_by(work: Callable[[], None]) -> None:
    """Do a benchmark's work; errors, interruptions and an end by signal become a line and exit code 1.

    Workers live in sessions of their own: by an exception, an end by signal reaches what stops them.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("error: terminated"))
    try:
        work()
    except (EdgeformerError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
