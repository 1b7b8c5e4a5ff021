"""A loaded model: text in, text out."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import memory_plan
from edgeformer.runtime.backends import Executor, Floats, Ints, Rows, backend_of, bounds_of, step_noise_of
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.decoding import Decoding
from edgeformer.runtime.errors import InputError, OptionError
from edgeformer.runtime.given import check_whole, is_list
from edgeformer.runtime.memory_errors import enough_memory
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.probabilities import log_softmax
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.results import Generation, Hypothesis, Score, Timings
from edgeformer.runtime.text import Text

BATCH_SIZE = 64

Source = str | Sequence[int]


class Model:
    """What `edgeformer.runtime.load` returns. Its methods may be called from several threads at once.

    Attributes:
        artifact: what is running, with its target and precision.
        kind: `encoder-decoder`, whose inputs are sources to read, or `decoder`, whose inputs are prompts to go on from.
        generation_config: the checkpoint's own options, used where a call gives none.
        passed_over: why `load` took none of the bundle's other artifacts, by their names; empty where one was named.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> None:
        self.bundle, self.artifact = bundle, artifact
        self.passed_over: dict[str, str] = {}
        self.sizes, self.tokens, self.kind = bundle.manifest.sizes, bundle.manifest.tokens, bundle.manifest.kind
        own_options = GenerationConfig.from_dict(bundle.read_json("generation_config.json"))
        self.text = Text(bundle)
        backend = backend_of(artifact)
        memory_plan.require(memory_plan.plan_memory(bundle.manifest, artifact))
        self.executor: Executor = backend.load(bundle, artifact, cores)
        self.bounds = bounds_of(self.executor)
        self.generation_config = own_options.within(self.most_tokens())
        # Of the call before, whose options often come again, with what it was made of.
        self.last_decoding: tuple[GenerationConfig, GenerationConfig, Decoding] | None = None

    def generate(
        self,
        inputs: Source | Sequence[Source],
        config: GenerationConfig | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        on_done: Callable[[int], None] = lambda done: None,
    ) -> list[Generation]:
        """Generate for each input what it would get alone.

        Args:
            inputs: texts, or rows of token ids as the tokenizer would give them; a single one counts as a list of one.
            config: options; the checkpoint's own where it is None.
            batch_size: most inputs that are computed together; inputs of like lengths are, and never more than the
                artifact takes. Where tokens are guessed, each input is computed alone.
            on_done: called with the number of inputs after each batch.

        Returns:
            one Generation for each input, in their order.

        Raises:
            InputError: no inputs, or one that is empty, too long, or outside the vocabulary.
            OptionError: an option that this model cannot meet.
            NotEnoughMemoryError: so many together do not fit into the memory that is free.

        A text ends where the model's positions do, whatever max_new_tokens allows; its finish_reason is `length` then.
        """
        sources = self.encode_inputs(inputs)
        config = config or self.generation_config
        check_whole("batch_size", batch_size)
        if batch_size < 1:
            raise OptionError(f"batch_size is {batch_size}, expected at least 1")
        decoding = self.decoding(config)
        seeds = decoding.seeds(len(sources))
        batch_size = 1 if decoding.lookup else min(batch_size, self.most_rows() // decoding.rows_each)
        generations: dict[int, Generation] = {}
        by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        for first in range(0, len(sources), batch_size):
            batch = by_length[first : first + batch_size]
            with enough_memory(len(batch)):
                found = self.generate_batch([sources[i] for i in batch], decoding, [seeds[i] for i in batch])
            generations |= zip(batch, found, strict=True)
            on_done(len(batch))
        return [generations[i] for i in range(len(sources))]

    def generate_batch(self, sources: list[list[int]], decoding: Decoding, seeds: list[int]) -> list[Generation]:
        clock = Clock()
        rows, prompt = self.start(sources, decoding.limits)
        clock.encoded()
        with closing(rows):
            found = decoding.run(rows, prompt, seeds, clock.stepped, self.to_look_in(sources[0]))
        timings = clock.timings()
        return [Generation(tuple([self.with_text(one) for one in several]), timings) for several in found]

    def start(self, sources: list[list[int]], limits: Limits) -> tuple[Rows, Prompt]:
        """Fresh rows for these inputs, and what each is given first."""
        if self.kind == "decoder":
            prompt = self.prompt(sources)
            return self.executor.start_empty(len(sources), limits.most_held(prompt)), prompt
        prompt = Prompt.of([[self.tokens.start]] * len(sources))
        return self.executor.start(sources, limits.most_held(prompt)), prompt

    def to_look_in(self, source: list[int]) -> list[int]:
        """A source, where texts are in its vocabulary: what it holds may come again in the text."""
        shared = self.kind == "encoder-decoder" and self.text.source is self.text.target
        return source if shared and self.sizes.source_vocab_size == self.sizes.vocab_size else []

    def prompt(self, rows: list[list[int]]) -> Prompt:
        """A language model's prompts; where one is empty, the start token."""
        return Prompt.of([row or [self.tokens.start] for row in rows], self.tokens.pad)

    def with_text(self, hypothesis: Hypothesis) -> Hypothesis:
        ids = hypothesis.token_ids
        return Hypothesis(ids, hypothesis.score, hypothesis.finish_reason, self.text.decode(ids))

    def stream(self, source: Source, config: GenerationConfig | None = None) -> Iterator[str]:
        """Pieces of text as they are generated; joined, they are what `generate` gives.

        Raises:
            InputError: as `generate`.
            OptionError: as `generate`; num_beams above 1, since a search knows its text only at its end.
        """
        (ids,) = self.encode_inputs([source])
        config = config or self.generation_config
        if config.num_beams > 1:
            raise OptionError(f"num_beams is {config.num_beams}: only greedy search can stream, set num_beams to 1")
        if config.num_return_sequences > 1:
            raise OptionError(
                f"num_return_sequences is {config.num_return_sequences}: a stream is one text, set it to 1"
            )
        return self.text.pieces(self.token_stream(ids, self.decoding(config)))

    def token_stream(self, source: list[int], decoding: Decoding) -> Iterator[int]:
        limits = decoding.limits
        rows, prompt = self.start([source], limits)
        with closing(rows):
            look_in, stops = self.to_look_in(source), decoding.stops(prompt)
            steps = decoding.steps(rows, prompt, decoding.seeds(1), source=look_in, stops=stops)
            for _, tokens, _ in steps:
                if tokens[0] not in limits.ends:
                    yield int(tokens[0])

    def score(
        self, inputs: Sequence[Source], targets: Sequence[Source], *, batch_size: int = BATCH_SIZE
    ) -> list[Score]:
        """How likely each target is, given its input.

        Args:
            inputs: as in `generate`.
            targets: one for each input: text, or ids without the end token, which is scored as well where the model has
                one (the first of several).
            batch_size: most pairs that are computed together, never more than the artifact takes.

        Raises:
            InputError: as `generate`; as many targets as inputs are needed; a target that is too long or unknown.
            OptionError: a batch_size below 1.
            NotEnoughMemoryError: so many together do not fit into the memory that is free.
        """
        sources = self.encode_inputs(inputs)
        check_whole("batch_size", batch_size)
        if batch_size < 1:
            raise OptionError(f"batch_size is {batch_size}, expected at least 1")
        if not is_list(targets) or len(targets) != len(sources):
            raise InputError(f"{len(sources)} inputs need as many targets, in a list; got {targets!r:.80}")
        rows = [self.encode_target(target) for target in targets]
        if self.kind == "decoder":
            for source, row in zip(sources, rows, strict=True):
                self.check_length(len(source or [self.tokens.start]) + len(row))
        batch_size = min(batch_size, self.most_rows())
        scores: list[Score] = []
        for first in range(0, len(rows), batch_size):
            part = slice(first, first + batch_size)
            with enough_memory(len(sources[part])):
                scores += self.score_batch(sources[part], rows[part])
        return scores

    def encode_target(self, target: Source) -> list[int]:
        ids = self.text.encode_target(target) if isinstance(target, str) else self.checked_ids(target, empty=True)
        if len(ids) >= self.sizes.max_positions:
            raise InputError(f"a target has {len(ids)} tokens, the model has {self.sizes.max_positions} positions")
        if len(ids) >= self.most_tokens():
            raise InputError(
                f"a target has {len(ids)} tokens, with the end token one more than artifact {self.artifact.name} was "
                f"built for, a capacity of {self.most_tokens()}: shorten it, or optimize for a larger capacity"
            )
        return ids

    def score_batch(self, sources: list[list[int]], targets: list[list[int]]) -> list[Score]:
        nothing_new = Limits(self.tokens.ends, least=0, most=1)
        firsts = [source or [self.tokens.start] for source in sources]
        if self.kind == "encoder-decoder":
            firsts = [[self.tokens.start] for _ in sources]
        given = Prompt.of([[*first, *target] for first, target in zip(firsts, targets, strict=True)], self.tokens.pad)
        begins = np.array([len(first) - 1 for first in firsts])[:, None]
        at = np.minimum(begins + np.arange(max(map(len, targets)) + 1), given.ids.shape[1] - 1)
        if self.kind == "decoder":
            started = self.executor.start_empty(len(sources), nothing_new.most_held(given))
        else:
            started = self.executor.start(sources, nothing_new.most_held(given))
        with closing(started) as rows:
            log_probs = log_softmax(rows.step(given.ids, given.lengths, at))
        wanted = [[*target, *self.tokens.ends[:1]] for target in targets]
        return [
            Score(tuple(row[np.arange(len(ids)), ids].tolist())) for row, ids in zip(log_probs, wanted, strict=True)
        ]

    def session(
        self,
        inputs: Source | Sequence[Source] | None = None,
        *,
        batch: int | None = None,
        capacity: int | None = None,
    ) -> Session:
        """Rows for a loop of one's own: add tokens with `Session.step`.

        Args:
            inputs: what an encoder-decoder reads, as in `generate`; one row each. None for a language model, whose
                prompts are its first step.
            batch: a language model's number of rows; 1 where it is None.
            capacity: most tokens that a row will hold; as many as the model or the artifact takes where it is None.

        Raises:
            InputError: as `generate`; inputs for a language model, or none for an encoder-decoder.
            OptionError: a batch or capacity out of range.
            NotEnoughMemoryError: so many rows do not fit into the memory that is free.
        """
        if self.kind == "decoder" and inputs is not None:
            raise InputError("a language model reads no source: begin with session(batch=...) and step its prompts")
        if self.kind == "encoder-decoder" and (inputs is None or batch is not None):
            raise InputError("an encoder-decoder's session has a row for each input: give the inputs, and no batch")
        for name, number in (("batch", batch), ("capacity", capacity)):
            if number is not None:
                check_whole(name, number)
        if batch is not None and not 1 <= batch <= self.most_rows():
            raise OptionError(f"batch is {batch}, expected at least 1, and no more than the artifact takes")
        most, of = self.most_tokens(), "the model's positions"
        if most < self.sizes.max_positions:
            of = f"which artifact {self.artifact.name} was built for"
        if capacity is not None and not 1 <= capacity <= most:
            raise OptionError(f"capacity is {capacity}, expected 1 to {most}, {of}")
        if inputs is None:
            self.require_memory(batch or 1, capacity)
            rows = self.executor.start_empty(batch or 1, capacity or most)
        else:
            sources = self.encode_inputs(inputs)
            self.require_memory(len(sources), capacity, max(map(len, sources)))
            rows = self.executor.start(sources, capacity or most)
        return Session(rows, capacity or most, self.sizes.vocab_size)

    def require_memory(self, rows: int, capacity: int | None, source_len: int | None = None) -> None:
        """Refuse rows that memory cannot hold. Where no capacity was asked for, they need to hold one token.

        Rows and sources that are beyond the artifact's bounds are counted up to these: the executor refuses them.
        """
        if source_len is not None:
            source_len = min(source_len, self.bounds.source_len or source_len)
        plan = memory_plan.plan_memory(
            self.bundle.manifest, self.artifact, batch=min(rows, self.most_rows()),
            capacity=capacity or self.bounds.capacity or 1, source_len=source_len, loaded=True,
        )  # fmt: skip
        memory_plan.require(plan)

    def most_tokens(self) -> int:
        """Tokens that a row can hold: the model's positions, or fewer where the artifact was built for fewer."""
        return min(self.sizes.max_positions, self.bounds.capacity or self.sizes.max_positions)

    def most_rows(self) -> int:
        """Rows that can be computed together."""
        return self.bounds.batch or sys.maxsize

    def encode_inputs(self, inputs: Source | Sequence[Source]) -> list[list[int]]:
        if not is_list(inputs) and not isinstance(inputs, str):
            raise InputError(f"inputs are {inputs!r:.80}, expected a list of texts or of rows of token ids")
        if len(inputs) == 0 and not isinstance(inputs, str):
            raise InputError("there are no inputs: give at least one")
        if isinstance(inputs, str) or isinstance(inputs[0], (int, np.integer)):
            inputs = [cast("Source", inputs)]
        return [self.encode_input(source) for source in cast("Sequence[Source]", inputs)]

    def encode_input(self, source: Source) -> list[int]:
        if self.kind == "encoder-decoder":
            if isinstance(source, str):
                return self.text.encode_source(source)
            return self.checked_ids(source, self.sizes.source_vocab_size, self.sizes.max_source_positions)
        ids = self.text.encode_prompt(source) if isinstance(source, str) else self.checked_ids(source, empty=True)
        self.check_length(len(ids))
        return ids

    def check_length(self, length: int) -> None:
        """Refuse a prompt that a row cannot hold."""
        if length > self.sizes.max_positions:
            raise InputError(f"an input has {length} tokens, the model has {self.sizes.max_positions} positions")
        if length > self.most_tokens():
            raise InputError(
                f"an input has {length} tokens, artifact {self.artifact.name} was built for {self.most_tokens()}: "
                "shorten it, or optimize for a larger capacity"
            )

    def checked_ids(
        self, ids: Sequence[int], vocab_size: int | None = None, most: int | None = None, *, empty: bool = False
    ) -> list[int]:
        vocab_size, most = vocab_size or self.sizes.vocab_size, most or self.sizes.max_positions
        wrong = f"token ids are whole numbers; got {ids!r:.80}"
        if not is_list(ids):
            raise InputError(wrong)
        try:
            row = [operator.index(token) for token in ids]
        except TypeError as error:
            raise InputError(wrong) from error
        if not row and not empty:
            raise InputError("an input has no tokens: give at least one")
        if len(row) > most:
            raise InputError(f"an input has {len(row)} tokens, the model has {most} positions")
        if unknown := [token for token in row if not 0 <= token < vocab_size]:
            raise InputError(f"token ids {unknown} are outside the vocabulary of {vocab_size}")
        return row

    def decoding(self, config: GenerationConfig) -> Decoding:
        """How this model does what was asked for.

        Raises:
            OptionError: it cannot.
        """
        if (last := self.last_decoding) is not None and last[0] is config and last[1] is self.generation_config:
            return last[2]
        if not isinstance(config, GenerationConfig):
            raise OptionError(f"options are {config!r:.80}, expected a GenerationConfig")
        decoding = self.new_decoding(config)
        self.last_decoding = config, self.generation_config, decoding
        return decoding

    def new_decoding(self, config: GenerationConfig) -> Decoding:
        positions, had = self.most_tokens(), f"the model has {self.sizes.max_positions} positions"
        if positions < self.sizes.max_positions:
            had = f"artifact {self.artifact.name} was built for {positions}: optimize for a larger capacity"
        lengths = {"max_new_tokens": 0, "min_new_tokens": 0, "max_length": 1, "min_length": 1}
        if beyond := [name for name, more in lengths.items() if (getattr(config, name) or 0) > positions + more]:
            raise OptionError(f"{beyond[0]} is {getattr(config, beyond[0])}, {had}")
        ends = config.ends or self.generation_config.ends or self.tokens.ends
        limits = Limits.of(config, ends, positions)
        decoding = Decoding.of(config, limits, self.sizes.vocab_size, step_noise_of(self.executor), self.text.target)
        going_on = self.sizes.vocab_size - len(limits.ends)
        if 1 < config.num_beams > going_on:
            raise OptionError(
                f"num_beams is {config.num_beams}, the vocabulary has {self.sizes.vocab_size} tokens, of which "
                f"{going_on} do not end a text"
            )
        if decoding.rows_each > self.most_rows():
            name = "num_beams" if config.num_beams > 1 else "num_return_sequences"
            raise OptionError(
                f"{name} is {decoding.rows_each}, artifact {self.artifact.name} was built for {self.most_rows()} rows"
            )
        return decoding


class Session:
    """Rows with their caches: the bare loop."""

    def __init__(self, rows: Rows, capacity: int, vocab_size: int) -> None:
        self.rows, self.capacity, self.vocab_size = rows, capacity, vocab_size
        self.closed = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; no step can follow."""
        if not self.closed:
            self.closed = True
            self.rows.close()

    @property
    def cache_lengths(self) -> Ints:
        """Tokens that each row holds, int64 (batch,)."""
        return self.rows.cache_lengths.copy()

    def step(
        self,
        input_ids: Ints | Sequence[Sequence[int]],
        lengths: Ints | Sequence[int] | None = None,
        logits_at: Ints | Sequence[Sequence[int]] | None = None,
    ) -> Floats:
        """Add tokens to each row.

        Args:
            input_ids: int64 (batch, q_len), right-padded with any id of the vocabulary.
            lengths: int64 (batch,), how many of them are real; q_len where it is None.
            logits_at: int64 (batch, n), positions in q_len whose logits are wanted; each row's last where it is None.

        Returns:
            logits, float32 (batch, n, vocab_size).

        Raises:
            InputError: another batch than the session's, more tokens than its capacity, or numbers that are no ids,
                lengths or positions; or the session is closed. The rows are as they were.
        """
        if self.closed:
            raise InputError("the session is closed: begin another")
        ids = array_of("input_ids", input_ids)
        batch = len(self.rows.cache_lengths)
        if ids.ndim != 2 or len(ids) != batch or ids.shape[1] < 1:
            raise InputError(f"input_ids are {ids.shape}, expected ({batch}, q_len) with q_len of at least 1")
        longest = int(self.rows.cache_lengths.max()) + ids.shape[1]
        if longest > self.capacity:
            raise InputError(f"a row would hold {longest} tokens, the session's capacity is {self.capacity}")
        ids = whole_numbers("input_ids", ids, most=self.vocab_size - 1)
        if lengths is not None:
            lengths = whole_numbers("lengths", array_of("lengths", lengths), most=ids.shape[1])
            if lengths.shape != (batch,):
                raise InputError(f"lengths are {lengths.shape}, expected ({batch},)")
        if logits_at is not None:
            logits_at = whole_numbers("logits_at", array_of("logits_at", logits_at), most=ids.shape[1] - 1)
            if logits_at.ndim != 2 or len(logits_at) != batch:
                raise InputError(f"logits_at are {logits_at.shape}, expected ({batch}, n)")
        return self.rows.step(ids, lengths, logits_at).copy()


def array_of(name: str, given: object) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise InputError(f"{name} are rows of different lengths: pad them on the right") from error


def whole_numbers(name: str, array: NDArray[Any], *, most: int) -> Ints:
    """The array as int64.

    Raises:
        InputError: it holds other things than whole numbers from 0 to most.
    """
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name} are {array.dtype}, expected whole numbers")
    if array.size and (array.min() < 0 or array.max() > most):
        raise InputError(f"{name} are from {array.min()} to {array.max()}, expected 0 to {most}")
    return array.astype(np.int64, copy=False)


class Clock:
    """Seconds from its making to each event."""

    def __init__(self) -> None:
        self.begin, self.encode = time.perf_counter(), 0.0
        self.ends: list[float] = []

    def encoded(self) -> None:
        self.encode = time.perf_counter() - self.begin

    def stepped(self) -> None:
        self.ends.append(time.perf_counter() - self.begin)

    def timings(self) -> Timings:
        first = self.ends[0] if self.ends else 0.0
        return Timings(self.encode, first, time.perf_counter() - self.begin, len(self.ends), tuple(self.ends))
