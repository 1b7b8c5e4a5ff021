"""Sliding windows: how many positions each layer's queries see (Jiang et al. 2023, "Mistral 7B")."""

from __future__ import annotations

from edgeformer.models.configs.keys import Keys, shown

Windows = tuple["int | None", ...]  # for each layer; None sees all

DEFAULT = 4096  # what Hugging Face's configurations mean where the key is missing; null says that there is none
FULL, SLIDING = "full_attention", "sliding_attention"


def no_windows(keys: Keys, num_layers: int) -> Windows:
    return (None,) * num_layers


def one_window(keys: Keys, num_layers: int) -> Windows:
    """The same in every layer."""
    absent = "sliding_window" in keys.values and keys.raw("sliding_window") is None
    return (None if absent else keys.whole("sliding_window", DEFAULT),) * num_layers


def windows_by_layer(keys: Keys, num_layers: int) -> Windows:
    """As `layer_types` says, or in the layers from `max_window_layers` on."""
    used, first = keys.flag("use_sliding_window", False), keys.whole("max_window_layers", 28, least=0)
    windows = one_window(keys, num_layers) if used else no_windows(keys, num_layers)
    keys.ignore("sliding_window")
    kinds = keys.raw("layer_types", [FULL if i < first else SLIDING for i in range(num_layers)])
    if not isinstance(kinds, list) or len(kinds) != num_layers or not set(map(str, kinds)) <= {FULL, SLIDING}:
        keys.problem(f"layer_types is {shown(kinds)}, expected {FULL} or {SLIDING} for each of {num_layers} layers")
        return windows
    if SLIDING in (keys.raw("layer_types") or []) and windows[0] is None:
        keys.problem(f"layer_types names {SLIDING}, and there is no sliding_window that use_sliding_window allows")
    return tuple(window if kind == SLIDING else None for window, kind in zip(windows, kinds, strict=True))
