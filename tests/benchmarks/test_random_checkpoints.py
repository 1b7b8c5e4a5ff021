from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from random_checkpoints import SPECIAL, WRITERS
from safetensors.numpy import load_file

from edgeformer.models.checkpoint import load_checkpoint


@pytest.mark.parametrize("kind", WRITERS)
def test_a_checkpoint_is_read_and_is_always_the_same(kind: str, tmp_path: Path) -> None:
    write, shapes = WRITERS[kind]
    for name in ("one", "other"):
        write(tmp_path / name, shapes["tiny"])
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert load_checkpoint(tmp_path / "one").config.d_model == shapes["tiny"].d_model


def test_no_text_ends_and_none_repeats_its_prompt(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    write, shapes = WRITERS["decoder"]
    write(tmp_path / "model", shapes["tiny"])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    prompts = torch.arange(5, 505).reshape(50, 10)
    with torch.no_grad():
        likeliest = model(prompts).logits[:, -1].argmax(-1)
    assert int(likeliest.min()) >= len(SPECIAL)
    assert float((likeliest == prompts[:, -1]).float().mean()) < 0.5
