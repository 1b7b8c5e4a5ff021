"""From the options of the command to what is measured."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import typer

from edgeformer.cli.benching.artifacts import Setup
from edgeformer.cli.benching.ceilings import Ceilings, measure_ceilings
from edgeformer.cli.benching.encoding import Encoding, Subject, check_texts, samples
from edgeformer.cli.benching.grid import Cell, Plan, Source, numbers
from edgeformer.cli.benching.replay import read_requests
from edgeformer.cli.benching.work import role_weights
from edgeformer.cli.inputs import Line, given
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import InputError, OptionError


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """The command's options, as they were given."""

    texts: Sequence[str]
    inputs: Path | None
    replay: Path | None
    batch: Sequence[str] | None
    prompt: Sequence[str] | None
    new_tokens: Sequence[str] | None
    max_new_tokens: int | None
    num_beams: Sequence[str] | None
    rounds: int
    warmup: int
    seed: int
    cores: Cores
    calls_only: bool

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is loaded.

        Raises:
            OptionError: a number out of range.
            typer.BadParameter: options that cannot be given together.
        """
        least = {"rounds": 1, "warmup": 0, "seed": 0}
        for name, value in (("rounds", self.rounds), ("warmup", self.warmup), ("seed", self.seed)):
            if value < least[name]:
                raise OptionError(f"{name} is {value}, expected at least {least[name]}")
        if sum((bool(self.texts or self.inputs), self.prompt is not None, self.replay is not None)) > 1:
            raise typer.BadParameter("give inputs, --prompt or --replay: one of them")
        if self.new_tokens and self.max_new_tokens is not None:
            raise typer.BadParameter("--new-tokens is how many, --max-new-tokens the most: give one of them")


def make_setup(model: Subject, folder: Path, asked: Asked) -> tuple[Setup, str]:
    """What is measured, and what its inputs are, in words.

    Args:
        model: any artifact of the bundle.
        folder: the bundle.
        asked: the options.

    Raises:
        InputError: a file that is empty or cannot be read, or a text that the model cannot take.
        OptionError: an option out of range.
    """
    requests = read_requests(asked.replay) if asked.replay else []
    check_texts(model, [Line(request.text) for request in requests])
    sources = [request.text for request in requests] or read_sources(model, asked.texts, asked.inputs)
    plan = Plan(cells_of(model, asked), sources, asked.rounds, asked.warmup, asked.seed, asked.cores)
    return Setup(folder, plan, requests, ceilings(model, asked), asked.calls_only), inputs_in_words(asked)


def cells_of(model: Subject, asked: Asked) -> list[Cell]:
    """Every combination of what was asked for.

    Raises:
        OptionError: a number out of range, or what an encoder cannot do.
    """
    if isinstance(model, Encoding) and (asked.new_tokens or asked.max_new_tokens or asked.num_beams):
        raise OptionError("an encoder writes nothing: leave out --new-tokens, --max-new-tokens and --num-beams")
    lengths: list[int | None] = [*numbers("new_tokens", asked.new_tokens)] or [None]
    prompts: list[int | None] = [*numbers("prompt", asked.prompt)] or [None]
    sizes, beams = numbers("batch", asked.batch) or [1], numbers("num_beams", asked.num_beams) or [1]
    cells = []
    for size, prompt, length, width in itertools.product(sizes, prompts, lengths, beams):
        changes = {
            "do_sample": False,  # calls that are alike have the same work
            "num_beams": width,
            "num_return_sequences": 1,
            "min_new_tokens": length,
            "max_new_tokens": length or asked.max_new_tokens,
        }
        config = model.generation_config.changed(**{name: v for name, v in changes.items() if v is not None})
        cells.append(Cell(size, prompt, config))
    return cells


def read_sources(model: Subject, texts: Sequence[str], file: Path | None) -> list[Source]:
    """Texts that were given, else the ids of the bundle's samples.

    Raises:
        InputError: a file that is empty or cannot be read, or a text that the model cannot take.
    """
    if not texts and file is None:
        return list(samples(model.bundle.manifest))
    lines = list(given(texts, file))
    if not lines:
        raise InputError(f"{file} is empty: give at least one line")
    check_texts(model, lines)
    return [line.text for line in lines]


def ceilings(model: Subject, asked: Asked) -> Ceilings | None:
    """Of this machine, also for arrays as large as the model's weights, which a cache may hold."""
    if asked.calls_only:
        return None
    sizes = [weights.bytes for weights in role_weights(model.bundle, model.artifact).values() if weights.bytes]
    return measure_ceilings(asked.cores.count, sizes)


def inputs_in_words(asked: Asked) -> str:
    if asked.replay:
        return f"requests of {asked.replay.name} at their times"
    if asked.prompt:
        return "random rows of the ids that the bundle's samples are made of"
    if asked.texts or asked.inputs:
        return "texts that were given"
    return "the bundle's samples"
