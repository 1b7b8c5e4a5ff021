"""Operators of `edgeformer.runtime.native`, and the functions that graphs carry for where those are not.

A function has an operator's name, and computes the same with ONNX Runtime's operators. A pass that puts an operator
into a graph gives it the function too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from edgeformer.exporter.ort_cpu.attention import MICROSOFT

DOMAIN = "edgeformer"
COLUMNS, QUAD = 16, 4  # of a weight: so many columns of the product lie side by side, with a quad of their inputs each


def carry(model: ir.Model, function: ir.Function) -> None:
    """Let a graph bring a function of ours along."""
    model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1


def passed_on(kinds: Mapping[str, ir.AttributeType]) -> list[ir.Attr]:
    """Attributes of a node in a function that are those of the function."""
    return [ir.RefAttr(name, name, kind) for name, kind in kinds.items()]


def function_of(
    name: str, inputs: Sequence[ir.Value], nodes: Sequence[ir.Node], outputs: Sequence[ir.Value],
    kinds: Mapping[str, ir.AttributeType], opset: int,
) -> ir.Function:  # fmt: skip
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": opset, MICROSOFT: 1}, name=name)
    return ir.Function(
        DOMAIN, name, graph=graph, attributes=[ir.Attr(name, kind, None) for name, kind in kinds.items()]
    )
