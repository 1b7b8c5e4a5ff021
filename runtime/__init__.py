"""Decode from a bundle, without torch.

`load` opens a bundle; the model that it returns generates, streams and scores.
"""

from edgeformer.runtime import errors
from edgeformer.runtime.loading import load
from edgeformer.runtime.model import Model, Session
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.results import Generation, Hypothesis, Score, Timings

__all__ = ["Generation", "GenerationConfig", "Hypothesis", "Model", "Score", "Session", "Timings", "errors", "load"]
