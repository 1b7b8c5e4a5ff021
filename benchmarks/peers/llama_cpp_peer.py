"""llama.cpp, through the C interface of llama-cpp-python, which alone has batches; runs in an environment of its own.

The weights become a GGUF file in fp32, which llama.cpp's own quantization reads. Rows of unequal lengths are sequences
of one context: what is read together is cut into batches of `BATCH` tokens.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import answering
import llama_cpp
import numpy as np
from gguf_weights import write_gguf

PACKAGES = ("llama-cpp-python",)
BATCH = 512  # llama.cpp's own default of tokens that are computed together
QUANTIZED = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}
FILE = "model.gguf"


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    if kind != "decoder":
        raise answering.CannotError("its Python package is for language models")
    output.mkdir(parents=True)
    if form == "F32":
        write_gguf(checkpoint, output / FILE)
        return
    whole = output / "whole.gguf"
    write_gguf(checkpoint, whole)
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = QUANTIZED[form]
    failed = llama_cpp.llama_model_quantize(str(whole).encode(), str(output / FILE).encode(), ctypes.byref(parameters))
    whole.unlink()
    if failed:
        raise answering.CannotError(f"llama.cpp did not quantize to {form}")


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return Decoder(folder / FILE, threads).run


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def QUIET(level: int, text: bytes, data: Any) -> None:  # noqa: N802  # a C function, which must outlive this module
    """Swallows what llama.cpp logs."""


class Decoder:
    """A loaded model, with a context for as many rows and tokens as the work before had."""

    def __init__(self, path: Path, threads: int) -> None:
        self.threads, self.context, self.room = threads, None, (0, 0)
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise answering.CannotError(f"llama.cpp cannot load {path.name}")
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def make_room(self, rows: int, tokens: int) -> None:
        """A context of this size, emptied."""
        if self.room != (rows, tokens):
            if self.context:
                llama_cpp.llama_free(self.context)
            parameters = llama_cpp.llama_context_default_params()
            parameters.n_seq_max, parameters.n_ctx = rows, rows * tokens
            parameters.n_batch = parameters.n_ubatch = BATCH
            parameters.n_threads = parameters.n_threads_batch = self.threads
            self.context, self.room = llama_cpp.llama_init_from_model(self.model, parameters), (rows, tokens)
            if not self.context:
                raise answering.CannotError(f"llama.cpp makes no context for {rows} rows of {tokens} tokens")
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def run(self, work: answering.Work) -> list[list[int]]:
        """Greedy search over logits."""
        if work.beams > 1:
            raise answering.CannotError("no beam search")
        rows = range(len(work.inputs))
        # A context is a multiple of 256 tokens, which is llama.cpp's own rounding.
        self.make_room(len(rows), -(-(max(work.lengths) + work.new_tokens) // 256) * 256)
        new = [[token] for token in self.read(work.inputs)]
        for step in range(work.new_tokens - 1):
            at = [work.lengths[row] + step for row in rows]
            found = self.decode([(new[row][-1], at[row], row, True) for row in rows])
            for row in rows:
                new[row].append(found[row])
        return new

    def read(self, prompts: list[list[int]]) -> list[int]:
        """The token behind each prompt."""
        tokens = [
            (token, at, row, at == len(prompt) - 1)
            for row, prompt in enumerate(prompts)
            for at, token in enumerate(prompt)
        ]
        first: dict[int, int] = {}
        for begin in range(0, len(tokens), BATCH):
            first |= self.decode(tokens[begin : begin + BATCH])
        return [first[row] for row in range(len(prompts))]

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> dict[int, int]:
        """Compute tokens, each with its position, its row, and whether its row's next token is wanted."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (token, position, row, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position, 1, row
            batch.logits[i] = wanted
        failed = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise answering.CannotError(f"llama_decode gave {failed}")
        found = {}
        for i, (_, _, row, wanted) in enumerate(tokens):
            if wanted:
                logits = llama_cpp.llama_get_logits_ith(self.context, i)
                found[row] = int(np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax())
        return found


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
