"""Where a checkpoint keeps a parameter, and how its layout differs from the module's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from torch import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a checkpoint that holds a parameter, or several side by side.

    Attributes:
        name: in the checkpoint.
        transposed: whether it is stored as (in, out) where the module has (out, in).
        part: (which, of how many): the parameter is one of equal parts along the module's first axis.
        older: other names, by which older checkpoints keep it.
    """

    name: str
    transposed: bool = False
    part: tuple[int, int] = (0, 1)
    older: tuple[str, ...] = ()

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in the checkpoint of a parameter of this shape."""
        whole = (shape[0] * self.part[1], *shape[1:]) if shape else shape
        return whole[::-1] if self.transposed else whole

    def taken_from(self, tensor: Tensor) -> Tensor:
        """The parameter, out of the stored tensor."""
        tensor = tensor.mT if self.transposed else tensor
        which, count = self.part
        return tensor.chunk(count)[which] if count > 1 else tensor


def renamed(name: str, rules: Sequence[tuple[str, str]]) -> str:
    """`name` with each rule's regular expression replaced, one after the other."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
