"""A loaded encoder: texts in; vectors, classes, labelled tokens or words for masks out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats
from edgeformer.runtime.backends.encoding import encoding_backend_of
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_batches import graph_inputs, like_lengths
from edgeformer.runtime.encoder_heads import classification, filled_mask, labelled_tokens, masks_of
from edgeformer.runtime.encoder_records import LAST_HIDDEN_STATE, EncoderRecord, Head
from edgeformer.runtime.encoder_results import Classification, FilledMask, LabelledToken
from edgeformer.runtime.encoder_text import EncodedInput, EncoderText, Input, is_pair
from edgeformer.runtime.errors import BundleError, InputError, OptionError
from edgeformer.runtime.given import is_list

BATCH_SIZE = 64
OnDone = Callable[[int], None]

# What a head is for: the method that gives it.
METHODS: dict[Head, str] = {
    "hidden-states": "encode",
    "embedding": "encode",
    "sequence-classes": "classify",
    "token-classes": "label_tokens",
    "masked-tokens": "fill_mask",
}


def ignore(done: int) -> None:
    """What is called where nobody counts."""


class EncoderModel:
    """What `edgeformer.runtime.load_encoder` returns. Its methods may be called from several threads at once.

    Every method takes texts, pairs of texts as tuples, or rows of token ids with their special tokens; a single one
    counts as a list of one. Each gets what it would get alone: inputs of like lengths are computed together, and never
    more than batch_size. Where `truncate` is true, what is too long is cut; else it is an error.

    Attributes:
        artifact: what is running, with its target and precision.
        record: what its outputs are, the head and its labels among it.
        passed_over: why `load_encoder` took none of the bundle's other artifacts, by their names; empty where one was
            named.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> None:
        self.bundle, self.artifact = bundle, artifact
        self.passed_over: dict[str, str] = {}
        self.sizes, self.tokens = bundle.manifest.sizes, bundle.manifest.tokens
        self.record = record_of(bundle)
        self.text = EncoderText(bundle, self.sizes.max_positions, self.sizes.vocab_size)
        self.executor = encoding_backend_of(artifact).load_encoder(bundle, artifact, self.record, cores)

    def encode(
        self,
        inputs: Input | Sequence[Input],
        *,
        truncate: bool = False,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
    ) -> Floats | list[Floats]:
        """The embedding of each input, or its hidden states where the model has no embedding.

        Returns:
            float32 (inputs, width) of a sentence encoder; else a list of float32 (tokens, d_model), special tokens
            among them.

        Raises:
            InputError: no inputs, or one that is empty, too long, or outside the vocabulary.
            OptionError: a batch_size below 1.
        """
        if self.record.head != "embedding":
            return self.hidden_states(inputs, truncate=truncate, batch_size=batch_size, on_done=on_done)
        rows = self.encode_inputs(inputs, truncate)
        found = np.empty((len(rows), self.record.width), np.float32)
        for i, vector in self.run(rows, self.record.output, batch_size, on_done):
            found[i] = vector
        return found

    def hidden_states(
        self,
        inputs: Input | Sequence[Input],
        *,
        truncate: bool = False,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
    ) -> list[Floats]:
        """The last hidden state of each token, whatever the head: float32 (tokens, d_model) for each input.

        Raises:
            InputError, OptionError: as `encode`.
        """
        rows = self.encode_inputs(inputs, truncate)
        found = {i: states.copy() for i, states in self.run(rows, LAST_HIDDEN_STATE, batch_size, on_done)}
        return [found[i] for i in range(len(rows))]

    def classify(
        self,
        inputs: Input | Sequence[Input],
        *,
        truncate: bool = False,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
    ) -> list[Classification]:
        """Every class of each input with its score.

        Raises:
            InputError, OptionError: as `encode`.
            OptionError: the model has no head for it.
        """
        self.require_head("sequence-classes")
        rows = self.encode_inputs(inputs, truncate)
        record, run = self.record, self.run(rows, names.LOGITS, batch_size, on_done)
        found = {i: classification(logits, record.labels, record.scoring) for i, logits in run}
        return [found[i] for i in range(len(rows))]

    def label_tokens(
        self,
        inputs: Input | Sequence[Input],
        *,
        truncate: bool = False,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
    ) -> list[tuple[LabelledToken, ...]]:
        """The likeliest class of each token that was in the input; those that the tokenizer added are left out.

        Raises:
            InputError, OptionError: as `encode`.
            OptionError: the model has no head for it.
        """
        self.require_head("token-classes")
        rows = self.encode_inputs(inputs, truncate)
        labels, scoring = self.record.labels, self.record.scoring
        run = self.run(rows, names.LOGITS, batch_size, on_done)
        found = {i: tuple(labelled_tokens(rows[i], logits, labels, scoring, self.text)) for i, logits in run}
        return [found[i] for i in range(len(rows))]

    def fill_mask(
        self,
        inputs: Input | Sequence[Input],
        top_k: int = 5,
        *,
        truncate: bool = False,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
    ) -> list[tuple[FilledMask, ...]]:
        """The likeliest tokens for each mask of each input; masks are filled one by one.

        Raises:
            InputError, OptionError: as `encode`; an input without a mask.
            OptionError: the model has no head for it; top_k is out of range.
        """
        self.require_head("masked-tokens")
        if not 1 <= top_k <= self.sizes.vocab_size:
            raise OptionError(f"top_k is {top_k}, expected 1 to {self.sizes.vocab_size}, the vocabulary")
        rows = self.encode_inputs(inputs, truncate)
        masks = [masks_of(row, self.text) for row in rows]
        run = self.run(rows, names.LOGITS, batch_size, on_done, masks)
        found = {
            i: tuple(filled_mask(rows[i], at, one, top_k, self.text) for at, one in zip(masks[i], logits, strict=True))
            for i, logits in run
        }
        return [found[i] for i in range(len(rows))]

    def require_head(self, head: Head) -> None:
        if self.record.head != head:
            raise OptionError(
                f"artifact {self.artifact.name} has a head for {self.record.head}, not for {head}: "
                f"call {METHODS[self.record.head]}"
            )

    def encode_inputs(self, inputs: Input | Sequence[Input], truncate: bool) -> list[EncodedInput]:
        """The tokens of each input."""
        if isinstance(inputs, (str, EncodedInput)) or is_pair(inputs):
            inputs = [cast("Input", inputs)]
        elif not is_list(inputs):
            raise InputError(f"inputs are {inputs!r:.80}, expected a list of texts, pairs or rows of token ids")
        elif len(inputs) == 0:
            raise InputError("there are no inputs: give at least one")
        elif isinstance(inputs[0], (int, np.integer)):
            inputs = [cast("Input", inputs)]
        return [self.text.encode(one, truncate=truncate) for one in cast("Sequence[Input]", inputs)]

    def run(
        self,
        rows: Sequence[EncodedInput],
        output: str,
        batch_size: int = BATCH_SIZE,
        on_done: OnDone = ignore,
        wanted: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, Floats]]:
        """One output of the graph for each row, without what is padding, in no order.

        Args:
            rows: the inputs.
            output: its name.
            batch_size: most rows that are computed together.
            on_done: called with the number of rows after each batch.
            wanted: of a head that fills masks, the positions of each row whose words are wanted.

        Yields:
            the row's index, and its part of the output, valid until the next.
        """
        if batch_size < 1:
            raise OptionError(f"batch_size is {batch_size}, expected at least 1")
        for batch in like_lengths([len(row.ids) for row in rows], batch_size):
            at = [wanted[i] for i in batch] if wanted else None
            yield from zip(batch, self.run_together([rows[i] for i in batch], output, at), strict=True)
            on_done(len(batch))

    def run_together(
        self, rows: Sequence[EncodedInput], output: str, wanted: Sequence[Sequence[int]] | None = None
    ) -> list[Floats]:
        """As `run`, in one batch, in the order of the rows."""
        wanted = wanted or [[0]] * len(rows)
        given = graph_inputs(self.record, rows, wanted, self.tokens.pad)
        found = self.executor.run(given, [output])[output]
        middle = self.record.outputs()[output][1:-1]
        if not middle:
            return list(found)
        parts = rows if middle == ("source_len",) else wanted
        counts = [len(part.ids) if isinstance(part, EncodedInput) else len(part) for part in parts]
        return [part[:count] for part, count in zip(found, counts, strict=True)]


def record_of(bundle: Bundle) -> EncoderRecord:
    """What a bundle says of its encoder.

    Raises:
        BundleError: it holds a model that generates.
    """
    if bundle.manifest.encoder is None:
        raise BundleError(
            f"bundle {bundle.folder}", [f"it holds a model of kind {bundle.manifest.kind}, which generates: use `load`"]
        )
    return bundle.manifest.encoder
