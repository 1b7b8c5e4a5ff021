"""What is installed is what is in the checkout."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.machine import this_machine
from edgeformer.runtime import native

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FOLDERS = ("cli", "exporter", "models", "runtime")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_folder_with_modules_is_a_listed_package(pyproject: dict[str, Any]) -> None:
    # An editable install finds a forgotten subpackage all the same; only the wheel lacks it.
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    on_disk = {".".join(("edgeformer", *path.parent.relative_to(ROOT).parts)) for path in modules}
    assert sorted(on_disk) == sorted(pyproject["tool"]["setuptools"]["packages"])


def test_every_package_has_an_init_file() -> None:
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert [path.parent for path in modules if not path.with_name("__init__.py").exists()] == []


def test_every_folder_declares_its_types() -> None:
    assert [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").exists()] == []


def test_type_checkers_see_every_folder_under_its_installed_name() -> None:
    seen = {link.name: link.resolve() for link in (ROOT / ".typing" / "edgeformer").iterdir()}
    assert seen == {folder: (ROOT / folder).resolve() for folder in FOLDERS}


def test_edgeformer_is_a_namespace_without_code_of_its_own() -> None:
    import edgeformer

    assert getattr(edgeformer, "__file__", None) is None
    assert not (ROOT / "edgeformer").exists()


def test_the_installed_version_is_the_one_in_pyproject(pyproject: dict[str, Any]) -> None:
    assert importlib.metadata.version("edgeformer") == pyproject["project"]["version"]


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64", reason="no compiler, or nothing to build"
)
def test_operators_in_c_are_built_where_there_is_a_compiler() -> None:
    assert native.library() is not None


@pytest.mark.skipif(native.library() is None or native.switched_off(), reason="no operators in C, or none wanted")
def test_operators_in_c_compute_right_where_the_processor_has_their_instructions() -> None:
    """They are left out where they do not, and their other tests with them."""
    assert (native.instructions() is not None) == ({"avx2", "fma"} <= set(this_machine().instruction_sets))


def test_every_declared_entry_point_loads() -> None:
    declared = importlib.metadata.distribution("edgeformer").entry_points
    assert {entry.group for entry in declared} == {"console_scripts", "edgeformer.backends"}
    assert all(callable(entry.load()) for entry in declared)
