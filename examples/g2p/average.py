"""Average the weights of checkpoints of one training: one model that is better than each of them.

    python examples/g2p/average.py build/train-1 build/train-2 --output build/average

After M. Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves accuracy without
increasing inference time" (2022). The checkpoints must have begun with the same weights.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import torch

from edgeformer.models.checkpoint import load_checkpoint, save_checkpoint


def average(folders: list[Path], output: Path) -> None:
    """Write the mean of the checkpoints' weights, with the other files of the last one."""
    model = load_checkpoint(folders[-1])
    states = [load_checkpoint(folder).state_dict() for folder in folders]
    model.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    output.mkdir(parents=True, exist_ok=True)
    for name in ("generation_config.json", "tokenizer.json", "target_tokenizer.json"):
        shutil.copyfile(folders[-1] / name, output / name)
    save_checkpoint(output, model, torch.float16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(sys.argv[1:])
    average(arguments.checkpoints, arguments.output)


if __name__ == "__main__":
    main()
