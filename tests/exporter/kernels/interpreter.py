"""Runs our attention on the CPU: the host's own code, with kernels that Triton's interpreter computes.

A program of its own, since Triton decides at its import whether it interprets. It reads pickled requests from stdin and
answers each on stdout.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from edgeformer.exporter.kernels import compiling, tiles
from edgeformer.runtime.plugins.attention import Extents, attend, workspace_bytes
from edgeformer.runtime.plugins.kernels import CACHED, MERGE, SPLITS, Kernel, Variant
from edgeformer.runtime.plugins.launching import Grid, Launcher, Loaded

SOURCE = Path(compiling.__file__).with_name("attention.py")
PREPARED: set[Any] = set()  # functions that the interpreter has prepared for the kernel that runs
FOLDER = tempfile.TemporaryDirectory()  # of edited sources
Tensors = Mapping[str, torch.Tensor]


class Interpreter:
    """The program, from the side of the tests."""

    def __init__(self) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def attend(self, variant: Variant, inputs: Tensors, *, in_place: bool = True, edit: Any = None) -> list[Any]:
        """The operator's outputs: the context, and with a cache its keys and values.

        Args:
            edit: a piece of the kernels' source and what stands there instead, to plant an error.
        """
        assert self.process.stdin
        assert self.process.stdout
        pickle.dump((variant, dict(inputs), in_place, edit), self.process.stdin)
        self.process.stdin.flush()
        outputs: list[Any] | str = pickle.load(self.process.stdout)
        assert isinstance(outputs, list), outputs
        return outputs

    def close(self) -> None:
        self.process.communicate()


class InterpretingLauncher(Launcher):
    """Takes addresses, as on a GPU, and computes on the tensors that lie there."""

    def __init__(self, kernels: Any, memory: list[torch.Tensor]) -> None:
        super().__init__()
        self.modules, self.memory = kernels, memory

    def load(self, variant: Variant, form: str) -> Loaded:
        tile = tiles.tile_of(variant, form, "8.7")
        splits = SPLITS if form == MERGE else tile.splits
        rows = 1 if form == MERGE else tile.rows
        function = self.modules.merge_splits if form == MERGE else self.modules.attention
        constants = compiling.constants_of(variant, splits, tile.rows, tile.keys)
        kernel = Kernel(variant, form, "8.7", "", "", (), 0, tile.num_warps, rows, splits)
        return Loaded(kernel, function, {name: constants[name] for name in constants if name in function.arg_names})

    def launch(self, loaded: Loaded, grid: Grid, arguments: Mapping[str, int], stream: int) -> None:
        names = [name for name in loaded.function.arg_names if name not in loaded.module]
        values = {name: arguments.get(name) for name in names}
        given = {name: self.at(value) if name.endswith("_ptr") and value else value for name, value in values.items()}
        PREPARED.clear()
        loaded.function[grid](**given, **loaded.module)

    def at(self, address: int) -> torch.Tensor:
        """What lies there, to the end of the tensor that holds it."""
        for tensor in self.memory:
            offset = address - tensor.data_ptr()
            if 0 <= offset < max(tensor.nbytes, 1):
                return tensor.view(-1)[offset // tensor.itemsize :]
        raise AssertionError(f"nothing lies at {address}")

    def copy(self, to: int, source: int, count: int, stream: int) -> None:
        whole = self.at(source)
        assert whole.nbytes == count
        self.at(to).copy_(whole)


def answer(variant: Variant, inputs: Tensors, in_place: bool, edit: Any) -> list[torch.Tensor]:
    query = inputs["query"]
    outputs = [torch.full_like(query, float("nan"))]
    if variant.operator == CACHED:
        past = [inputs["past_key"], inputs["past_value"]]
        outputs += past if in_place else [torch.full_like(cache, float("nan")) for cache in past]
    capacity = inputs["past_key" if variant.operator == CACHED else "key"].shape[2]
    extents = Extents(query.shape[0], query.shape[2], capacity)
    workspace = torch.full((workspace_bytes(variant, extents) // 4,), float("nan"))
    memory = [*inputs.values(), *outputs, workspace]
    launcher = InterpretingLauncher(load_kernels(edit), memory)
    addresses = [[tensor.data_ptr() for tensor in tensors] for tensors in (inputs.values(), outputs)]
    attend(launcher, variant, extents, *addresses, workspace.data_ptr(), 0)
    return outputs


@functools.cache
def load_kernels(edit: tuple[str, str] | None) -> Any:
    text = SOURCE.read_text(encoding="utf-8")
    if edit:
        assert edit[0] in text, f"the source has no {edit[0]!r}"
        text = text.replace(*edit)
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "attention.py"  # Triton reads it when the kernel first runs
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("interpreted_attention", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mend_interpreter() -> None:
    """Triton 3.9's interpreter holds bfloat16 as bits, and multiplies those.

    Most of its time are overflow checks, and preparing a function again at every call of it; both are left out.
    """
    from triton.runtime import interpreter

    builder, multiply = interpreter.interpreter_builder, interpreter.interpreter_builder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar.name != "bf16":
            return handle
        bits = handle.data.astype("uint32") << 16
        return interpreter.TensorHandle(bits.view("float32"), interpreter.tl.float32)

    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        if function.fn not in PREPARED:
            interpreter._patch_lang(function.fn)
            PREPARED.add(function.fn)
        return function.rewrite()(*arguments, **named)

    interpreter.InterpretedFunction.__call__ = call
    builder.create_dot = lambda a, b, *others: multiply(widened(a), widened(b), *others)
    builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


def main() -> None:
    mend_interpreter()
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            pickle.dump(answer(*request), answers)
        except Exception:
            pickle.dump(traceback.format_exc(), answers)
        answers.flush()


if __name__ == "__main__":
    main()
