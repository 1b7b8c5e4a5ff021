"""The peers of benchmarks/peer_speed.py: what each can be asked for, and why not for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
OURS = "edgeformer"
KINDS = ("decoder", "encoder", "paper")


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A library.

    Attributes:
        name: as it is printed.
        stem: of its files: `STEM-requirements.txt`, and of its virtual environment.
        program: what runs there, speaking the protocol of peers/answering.py.
        formats: of each kind of model, the bits of a weight by the peer's own name for how it is stored.
        lacking: of kinds without formats, why.
    """

    name: str
    stem: str
    program: Path
    formats: Mapping[str, Mapping[str, int]]
    lacking: Mapping[str, str]

    @property
    def requirements(self) -> Path:
        return PEERS / f"{self.stem}-requirements.txt"


ALL = (
    Peer(
        OURS, "", Path(__file__).with_name("peer_ours.py"),
        {kind: {"fp32": 32, "int8": 8, "int8-rows": 8, "int4": 4} for kind in KINDS},
        {},
    ),
    Peer(
        "llama.cpp", "llama-cpp", PEERS / "llama_cpp_peer.py",
        {"decoder": {"F32": 32, "Q8_0": 8, "Q4_0": 4, "Q4_1": 4, "Q4_K_M": 4}},
        {"encoder": "llama.cpp runs BERT; no conversion is written here",
         "paper": "has no such encoder-decoder"},
    ),
    Peer(
        "onnxruntime-genai", "onnxruntime-genai", PEERS / "genai_peer.py",
        {"decoder": {"fp32": 32, "int8": 8, "int4": 4}},
        {"encoder": "is for models that generate", "paper": "its builder has no encoder-decoder of this kind"},
    ),
    Peer(
        "CTranslate2", "ctranslate2", PEERS / "ctranslate2_peer.py",
        {kind: {"float32": 32, "int8": 8} for kind in KINDS}, {},
    ),
    Peer(
        "OpenVINO", "openvino", PEERS / "openvino_peer.py",
        {"decoder": {"fp32": 32, "int8": 8, "int4": 4}, "encoder": {"fp32": 32, "int8": 8}},
        {"paper": "optimum-intel reads models of transformers, which has none of this kind"},
    ),
    Peer(
        "optimum-onnx", "optimum-onnx", PEERS / "optimum_onnx_peer.py",
        {"decoder": {"fp32": 32, "int8": 8}, "encoder": {"fp32": 32, "int8": 8}},
        {"paper": "optimum reads models of transformers, which has none of this kind"},
    ),
    Peer(
        "transformers", "transformers", PEERS / "transformers_peer.py",
        {"decoder": {"eager": 32, "compiled": 32}, "encoder": {"eager": 32, "compiled": 32}},
        {"paper": "has no model of this kind"},
    ),
)  # fmt: skip
REFERENCE = "transformers eager"  # whose outputs are taken as right; ours in fp32 where it takes no part
