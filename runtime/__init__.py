"""Run a bundle, without torch.

`load` opens a bundle whose model writes; what it returns generates, streams and scores. `load_encoder` opens one whose
model only reads; what it returns gives embeddings, classes, labelled tokens and words for masks.
"""

from edgeformer.runtime import errors
from edgeformer.runtime.encoder_results import Classification, FilledMask, Filling, LabelledToken, LabelScore
from edgeformer.runtime.encoders import EncoderModel
from edgeformer.runtime.loading import load, load_encoder
from edgeformer.runtime.model import Model, Session
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.results import Generation, Hypothesis, Score, Timings

__all__ = [
    "Classification", "EncoderModel", "FilledMask", "Filling", "Generation", "GenerationConfig", "Hypothesis",
    "LabelScore", "LabelledToken", "Model", "Score", "Session", "Timings", "errors", "load", "load_encoder",
]  # fmt: skip
