"""The shape of a bundle's model, from its portable graphs alone: a device has no torch and no onnx to ask."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from edgeformer.cli.benching.graph_weights import (
    DIMS,
    GRAPH,
    INITIALIZER,
    LOOKUPS,
    NAME,
    NODE,
    NODE_INPUT,
    NODE_TYPE,
    parts,
    text,
)
from edgeformer.cli.sizing.shapes import Role, Shape, Weight
from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import config_class, family_of
from edgeformer.runtime.bundle import Bundle
from edgeformer.runtime.errors import BundleError, ConfigError
from edgeformer.runtime.loading import PORTABLE
from edgeformer.runtime.protobuf import fields, varints

NODE_OUTPUT, NODE_ATTRIBUTE = 2, 5  # of NodeProto
ATTRIBUTE_NAME, ATTRIBUTE_INT = 1, 3
EXTERNAL_DATA, ENTRY_KEY, ENTRY_VALUE = 13, 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A value as the i-th input of an operator, and what that makes."""

    kind: str
    i: int
    made: str
    turned: bool  # a Gemm that transposes it


Users = dict[str, list[Use]]


def shape_of_bundle(bundle: Bundle) -> Shape:
    """The shape of a bundle's model.

    Raises:
        BundleError: it has no portable graphs, or they are no ONNX.
    """
    manifest, portable = bundle.manifest, bundle.artifact(PORTABLE)
    if portable is None:
        raise BundleError(f"bundle {bundle.folder}", [f"it has no artifact {PORTABLE}, whose graphs are counted"])
    try:
        roles = {role: role_of(bundle.folder / path) for role, path in portable.graphs.items()}
    except ValueError as error:
        raise BundleError(f"bundle {bundle.folder}", [f"its portable graphs are damaged: {error}"]) from error
    windows = windows_of(bundle) or (None,) * manifest.sizes.num_layers
    distinct = {weight.key: weight.count for role in roles.values() for weight in role.weights}
    parameters = sum(distinct.values()) + sum(role.others for role in roles.values())
    return Shape(manifest.model_type, manifest.kind, manifest.sizes, manifest.encoder, roles, windows, parameters)


def windows_of(bundle: Bundle) -> tuple[int | None, ...] | None:
    """What each layer sees, by the checkpoint's own configuration; None where it says nothing that is known here."""
    values = bundle.read_json("config.json")
    try:
        config = config_class(family_of(values, "config.json")).from_keys(Keys(values, folder=bundle.folder))
    except ConfigError:  # of a module of one's own
        return None
    windows: tuple[int | None, ...] | None = getattr(config, "windows", None)
    return windows


def role_of(path: Path) -> Role:
    """What a portable graph holds.

    Raises:
        ValueError: it is not ONNX.
    """
    graph = [value for field, value in fields(memoryview(path.read_bytes())) if field == GRAPH]
    users, attentions = users_of(graph)
    weights, others = list[Weight](), 0
    for part in graph:
        for name, dims, key in initializers(part):
            if len(dims) == 2 and (weight := matrix(key or (path.name, name), dims, users.get(name, []), users)):
                weights.append(weight)
            else:
                others += math.prod(dims)
    return Role(tuple(weights), others, attentions)


def initializers(part: int | memoryview) -> Iterator[tuple[str, list[int], str]]:
    """Name and extents of each, and where it lies in the file of weights, where equal ones of both graphs are one."""
    for field, tensor in parts(part):
        if field != INITIALIZER:
            continue
        name, dims, key = "", list[int](), ""
        for number, value in parts(tensor):
            if number == DIMS:
                dims += [value] if isinstance(value, int) else list(varints(value))
            elif number == NAME:
                name = text(value)
            elif number == EXTERNAL_DATA:
                entry = dict(parts(value))
                if text(entry.get(ENTRY_KEY, 0)) == "offset":
                    key = text(entry.get(ENTRY_VALUE, 0))
        yield name, dims, key


def users_of(graph: list[int | memoryview]) -> tuple[Users, int]:
    """Who takes each value, and how many attentions there are."""
    users, attentions = defaultdict[str, list[Use]](list), 0
    for part in graph:
        for field, node in parts(part):
            if field != NODE:
                continue
            found = list(parts(node))
            kind = next((text(value) for number, value in found if number == NODE_TYPE), "")
            made = next((text(value) for number, value in found if number == NODE_OUTPUT), "")
            attributes = [dict(parts(value)) for number, value in found if number == NODE_ATTRIBUTE]
            turned = any(text(a.get(ATTRIBUTE_NAME, 0)) == "transB" and a.get(ATTRIBUTE_INT) for a in attributes)
            for i, name in enumerate(text(value) for number, value in found if number == NODE_INPUT):
                users[name].append(Use(kind, i, made, turned))
            attentions += kind == "Attention"
    return users, attentions


def matrix(key: object, dims: list[int], uses: list[Use], users: Users) -> Weight | None:
    """A matrix that is multiplied or looked up in. Of a table rows come first, of most products the inputs."""
    looked_up = any(use.kind in LOOKUPS and use.i == 0 for use in uses)
    if plain := [use for use in uses if multiplies(use)]:
        k, n = dims[::-1] if plain[0].turned else dims
        return Weight(key, k, n, True, looked_up)
    turned = any(use.kind == "Transpose" and any(map(multiplies, users.get(use.made, []))) for use in uses)
    return Weight(key, dims[1], dims[0], turned, looked_up) if looked_up or turned else None


def multiplies(use: Use) -> bool:
    return use.kind in ("MatMul", "Gemm") and use.i == 1
