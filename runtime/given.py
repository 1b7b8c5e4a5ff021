"""What callers give, looked at before it is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeformer.runtime.errors import OptionError


def is_list(given: object) -> bool:
    """Whether it is a list or an array: a text is none, and bytes are no token ids."""
    return isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes))


def check_whole(name: str, value: object) -> None:
    """Refuse what is no whole number; true is none.

    Raises:
        OptionError: naming it.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise OptionError(f"{name} is {value!r}, expected a whole number")
