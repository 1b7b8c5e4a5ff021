"""Rounding that makes up for its errors: what one weight loses, those that are still to be rounded take over.

After E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2023). It
minimizes |X W - X Q|^2 for the inputs X of a calibration sample, instead of |W - Q|^2.
"""

from __future__ import annotations

import numpy as np

from edgeformer.exporter.ort_cpu.block_codes import Array, Codes, Scheme, coded, codes_of

DAMPING = 0.01  # of the mean of the diagonal, added to it: inputs that a sample never shows may still come


def quantize_with_compensation(weight: Array, scheme: Scheme, moments: Array) -> Codes:
    """Codes of a weight, input by input, each error spread over the inputs that follow.

    Args:
        weight: float32 (k, n), k a multiple of the scheme's block.
        moments: float32 (k, k), X^T X over the rows of a sample.
    """
    k, n = weight.shape
    steps = inverse_steps(moments)
    left = weight.T.astype(np.float64)  # (n, k), as it is after the errors so far
    codes = np.empty((n, k), np.uint8)
    scales = np.empty((n, k // scheme.block), np.float32)
    points = np.full((n, k // scheme.block), scheme.middle, np.uint8)
    importance = np.ascontiguousarray(np.diag(moments), np.float32)
    importance = importance / max(float(importance.mean()), 1e-30) + np.float32(1e-3)
    for begin in range(0, k, scheme.block):
        block = slice(begin, begin + scheme.block)
        found = coded(left[:, None, block].astype(np.float32), scheme, importance[None, block])
        scale, point = found[1][:, 0], np.full(n, scheme.middle) if found[2] is None else found[2][:, 0]
        scales[:, begin // scheme.block], points[:, begin // scheme.block] = scale, point
        errors = np.empty((n, scheme.block))
        for column in range(begin, begin + scheme.block):
            wanted = left[:, column].astype(np.float32)
            chosen = codes_of(wanted[:, None], scheme, scale, point.astype(np.float32))[:, 0]
            codes[:, column] = chosen
            error = (left[:, column] - (chosen - point) * scale) / steps[column, column]
            left[:, column : block.stop] -= error[:, None] * steps[column, column : block.stop]
            errors[:, column - begin] = error
        left[:, block.stop :] -= errors @ steps[block, block.stop :]
    shaped = codes.reshape(n, k // scheme.block, scheme.block)
    return Codes(scheme, shaped, scales, None if scheme.symmetric else points)


def inverse_steps(moments: Array) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The upper Cholesky factor of the inverse of the damped moments: how an error spreads over later inputs."""
    damped = moments.astype(np.float64)
    diagonal = np.diag(damped).copy()
    damped[np.diag_indices_from(damped)] += DAMPING * max(float(diagonal.mean()), 1e-30)
    # inverse = U^T U, with U upper triangular
    upper: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.linalg.cholesky(np.linalg.inv(damped)).T.copy()
    return upper
