"""Values held against a JSON Schema: the words that this project's schema uses, and no others.

https://json-schema.org/draft/2020-12: type, enum, properties, required, additionalProperties, items, minimum, anyOf,
and $ref into $defs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def problems(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """One sentence for everything in a value that its schema does not allow.

    Args:
        value: as `json` reads it.
        schema: of the value.
        definitions: of the whole schema, by their names.
        where: the value's place, as messages name it.
    """
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        branches = [list(problems(value, branch, definitions, where)) for branch in schema["anyOf"]]
        if all(branches):
            yield from min(branches, key=len)  # the branch that was nearest meant
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r:.60}, expected {' or '.join(map(repr, schema['enum']))}"
    if "type" in schema and not is_of(value, schema["type"]):
        yield f"{where} is {value!r:.60}, expected {schema['type']}"
        return
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} is {value}, expected at least {schema['minimum']}"
    if isinstance(value, dict):
        yield from object_problems(value, schema, definitions, where)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], definitions, f"{where}[{index}]")


def is_of(value: Any, name: str) -> bool:
    """Whether a value is of a schema's type; True is no number, 1.0 is an integer."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[name])


def object_problems(
    value: dict[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str
) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{where} has no {name!r}" for name in schema.get("required", ()) if name not in value)
    for name, item in value.items():
        place = f"{where}.{name}" if where else name
        if name in known:
            yield from problems(item, known[name], definitions, place)
        elif others is False:
            yield f"{place} is not known"
        elif isinstance(others, dict):
            yield from problems(item, others, definitions, place)
