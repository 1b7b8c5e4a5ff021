"""Kinds of command-line arguments that several benchmarks take."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value
