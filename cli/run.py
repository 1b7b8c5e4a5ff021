"""`edgeformer run`: texts in, generated texts out."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.cli.inputs import Line
    from edgeformer.runtime import EncoderModel, Generation, GenerationConfig, Model

    Encode = Callable[[Model, Iterable[Line]], list[list[int]]]

BATCHES = 16  # read ahead, so that inputs of like lengths can be computed together


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Inputs; `-` reads lines of standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read one input a line, in UTF-8.", show_default=False)
    ] = None,
    artifact: Annotated[
        str | None, typer.Option("--artifact", metavar="NAME", help="What to run; the best that runs here by default.")
    ] = None,
    num_beams: Annotated[
        int | None, typer.Option("--num-beams", help="Hypotheses of a beam search; 1 is greedy.")
    ] = None,
    num_return_sequences: Annotated[
        int | None,
        typer.Option("--num-return-sequences", help="Results for each input; at most --num-beams of a search."),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option("--length-penalty", help="A hypothesis' score is divided by its length to this power."),
    ] = None,
    early_stopping: Annotated[
        str | None, typer.Option("--early-stopping", metavar="true|false|never", help="When a beam search ends.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", help="Most tokens to generate, the end token among them.")
    ] = None,
    min_new_tokens: Annotated[
        int | None, typer.Option("--min-new-tokens", help="Fewest tokens to generate before the end.")
    ] = None,
    do_sample: Annotated[
        bool | None,
        typer.Option("--do-sample/--no-do-sample", help="Draw tokens at random instead of taking the likeliest."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="With --do-sample: below 1 for likelier tokens.")
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            help="With --do-sample: draw from so many of the likeliest tokens, 0 for all. Encoders that fill masks: "
            "tokens for each.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="With --do-sample: draw from the likeliest tokens that together are so likely."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", help="With --do-sample: draw from tokens so likely, as a share of the likeliest's."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="With --do-sample: the same seed gives the same texts.")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option("--repetition-penalty", help="Above 1, tokens that there are already become less likely."),
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option("--no-repeat-ngram-size", help="No run of so many tokens comes twice.")
    ] = None,
    prompt_lookup_num_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-lookup-num-tokens",
            help="Greedy search guesses so many tokens at most: the same text, in fewer steps where it repeats itself.",
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End where this text is complete; several times for several."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Inputs are messages to answer, written as the model's chats are.")
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="With --chat: what the model is told before.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Encoders: an input is two texts with a tab between them.")
    ] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Encoders: cut an input that is too long.")] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Most inputs that are computed together.")] = 64,
    threads: Annotated[int | None, typer.Option("--threads", help="Cores to use; all by default.")] = None,
    spin: Annotated[
        str, typer.Option("--spin", metavar="WHEN", help="When waiting threads keep cores busy: steps, always, never.")
    ] = "steps",
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each piece of text as it comes; no beam search can.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what runs, and why none of the others, to standard error.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a line of JSON for each input: input, text, score, token_ids, finish_reason, and hypotheses "
            "where more than one was asked for.",
        ),
    ] = False,
) -> None:
    """Generate for texts, the lines of a file, or the lines of standard input.

    One text on the command line gives its result alone; otherwise each line is the input, a tab and the result, and
    with --num-return-sequences another tab and the score. Options that are not given are the checkpoint's own.

    An encoder does what its head is for: embeddings (and how similar they are), classes, labels of tokens, or words
    for the masks in a text.

    Example:
      edgeformer run bundle/ hello
      edgeformer run bundle/ --file words.txt --num-beams 4 --json
      edgeformer run bundle/ < words.txt
      edgeformer run bundle/ "Once upon a time" --do-sample --temperature 0.8 --seed 1 --stream
      edgeformer run bundle/ --chat --system "Be brief." "Who are you?"
    """
    if stream and as_json:
        raise typer.BadParameter("--stream prints text as it comes, --json whole results: give one of them")
    if system is not None and not chat:
        raise typer.BadParameter("--system is the beginning of a chat: give --chat as well")
    from edgeformer.cli import generation_options, inputs, progress
    from edgeformer.cli.run_encoder import encoder_options, run_encoder
    from edgeformer.runtime import load, load_encoder
    from edgeformer.runtime.bundle import read_manifest

    lines = inputs.given(texts or [], file)
    alone = texts is not None and len(texts) == 1 and isinstance(lines, list)
    total = len(lines) if isinstance(lines, list) else None
    given: dict[str, Any] = {
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "do_sample": do_sample,
        "temperature": temperature,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "prompt_lookup_num_tokens": prompt_lookup_num_tokens,
        "stop_strings": stop,
    }
    of_encoders = {"pairs": pairs, "truncate": truncate}
    if read_manifest(bundle).kind == "encoder":
        refuse_options(given | {"chat": chat or None, "stream": stream or None}, "models that generate")
        encoder = load_encoder(bundle, artifact, threads=threads, spin=spin)  # type: ignore[arg-type]  # checked there
        if verbose:
            print_choice(encoder)
        wanted = encoder_options(encoder, pairs=pairs, truncate=truncate, top_k=top_k, batch_size=batch_size)
        with progress.counting("inputs", total, hidden=sys.stdout.isatty()) as on_done:
            run_encoder(encoder, lines, wanted, on_done, alone=alone, as_json=as_json)
        return
    refuse_options({name: value or None for name, value in of_encoders.items()}, "encoders")
    model = load(bundle, artifact, threads=threads, spin=spin)  # type: ignore[arg-type]
    if verbose:
        print_choice(model)
    config = generation_options.changed(model.generation_config, given | {"top_k": top_k})
    encode: Encode = inputs.encode
    if chat:
        from edgeformer.cli.chat import encode_chats

        encode = functools.partial(encode_chats, system=system)
    with generation_options.as_typed([*given, "top_k", "batch_size"]):
        if stream:
            print_streams(model, lines, config, encode, alone=alone)
            return
        with progress.counting("inputs", total, hidden=sys.stdout.isatty()) as on_done:
            for line, generation in generate(model, lines, config, encode, batch_size, on_done):
                print_generation(line, generation, config, alone=alone, as_json=as_json)


def refuse_options(given: Mapping[str, Any], whose: str) -> None:
    """Refuse options that are for other models than the bundle's.

    Raises:
        OptionError: naming those that were given.
    """
    from edgeformer.cli.generation_options import spelled
    from edgeformer.runtime.errors import OptionError

    if names := [spelled(name) for name, value in given.items() if value is not None]:
        raise OptionError(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} for {whose}, which this is none of")


def print_choice(model: Model | EncoderModel) -> None:
    """What was loaded, and why it is none of the bundle's other artifacts."""
    print(f"runs {model.artifact.name}", file=sys.stderr)
    for name, reason in model.passed_over.items():
        print(f"  not {name}: {reason}", file=sys.stderr)


def generate(
    model: Model, lines: Iterable[Line], config: GenerationConfig, encode: Encode, batch_size: int, on_done: Any
) -> Iterator[tuple[Line, Generation]]:
    """Each line with its result, in their order, some batches at a time: a long file is never held whole.

    Raises:
        InputError: there are no lines, or the model cannot take one.
    """
    from edgeformer.cli.generation_options import for_lines
    from edgeformer.runtime.errors import InputError

    rest, done = iter(lines), 0
    while chunk := list(itertools.islice(rest, BATCHES * max(batch_size, 1))):
        rows, own = encode(model, chunk), for_lines(config, len(chunk), first=done)
        done += len(chunk)
        yield from zip(chunk, model.generate(rows, own, batch_size=batch_size, on_done=on_done), strict=True)
    if not done:
        raise InputError("there are no inputs: give at least one")


def print_generation(
    line: Line, generation: Generation, config: GenerationConfig, *, alone: bool, as_json: bool
) -> None:
    from edgeformer.cli.printing import print_json, print_line

    best, several = generation.hypotheses[0], config.num_return_sequences > 1
    if as_json:
        found = [
            {"text": h.text, "score": h.score, "token_ids": h.token_ids, "finish_reason": h.finish_reason}
            for h in generation.hypotheses
        ]
        print_json({"input": line.text, **found[0], **({"hypotheses": found} if several else {})}, indent=None)
    elif several:
        for hypothesis in generation.hypotheses:
            print_line(f"{line.text}\t{hypothesis.text}\t{hypothesis.score:.4f}")
    else:
        print_line(best.text if alone else f"{line.text}\t{best.text}")


def print_streams(
    model: Model, lines: Iterable[Line], config: GenerationConfig, encode: Encode, *, alone: bool
) -> None:
    from edgeformer.cli.generation_options import for_lines
    from edgeformer.cli.printing import print_line
    from edgeformer.runtime.errors import InputError

    done = 0
    for line in lines:
        (row,) = encode(model, [line])
        pieces = model.stream(row, for_lines(config, 1, first=done))
        done += 1
        if not alone:
            print_line(line.text, end="\t")
        for piece in pieces:
            print_line(piece, end="", flush=True)
        print_line()
    if not done:
        raise InputError("there are no inputs: give at least one")
