"""Every command of the docs runs, and prints what its page shows, or says on its page why no test runs it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .blocks import Block, blocks_of, commands_of, is_as_shown, printed_by, problems_of

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "docs" / "getting-started.md"  # which makes the bundle that the other pages use
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "examples").glob("*/README.md")])


def test_every_page_marks_what_no_test_runs() -> None:
    assert [problem for page in PAGES for block in blocks_of(page) for problem in problems_of(block)] == []


def run_page(page: Path, folder: Path) -> None:
    """Every command of a page, one after another, in a folder with the repository's examples/."""
    (folder / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks_of(page):
        if block.reason is not None:
            continue
        if block.file is not None:
            (folder / block.file).write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "console":
            run_console(block, folder)
        elif block.language == "python":
            run_python(block, folder, names)


def run_console(block: Block, folder: Path) -> None:
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands_of(block):
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=folder, env={**os.environ, "PATH": scripts, "COLUMNS": "200"},
            capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = f"{block.place}: {command.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == command.code, told
        error = done.stderr[done.stderr.index("error: ") :] if command.code else ""
        assert not command.shown or is_as_shown(command.shown, done.stdout + error), told


def run_python(block: Block, folder: Path, names: dict[str, Any]) -> None:
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        exec(compile(block.text, block.place, "exec"), names)
    if wanted := printed_by(block.text):
        assert is_as_shown(tuple(wanted), out.getvalue()), f"{block.place}: {out.getvalue()}"


@pytest.fixture(scope="session")
def first_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first page was run: build/g2p is the example's bundle."""
    folder = tmp_path_factory.mktemp("first")
    run_page(FIRST, folder)
    return folder


def runs(page: Path) -> bool:
    return any(block.language in ("console", "python") and block.reason is None for block in blocks_of(page))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(sys.version_info < (3, 11), reason="exporting needs Python 3.11")
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_shows(page: Path, first_folder: Path, tmp_path: Path) -> None:
    if page == FIRST:
        return  # it ran, or the fixture would have failed
    if page.name == "gpu-server.md":
        pytest.importorskip("tensorrt_rtx", reason="builds an engine")
    shutil.copytree(first_folder / "build" / "g2p", tmp_path / "build" / "g2p", copy_function=os.link)
    run_page(page, tmp_path)


@pytest.fixture
def page(tmp_path: Path) -> Callable[[str], list[Block]]:
    def make(text: str) -> list[Block]:
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        return blocks_of(path)

    return make


MARKED = """
Words.

```console
$ echo one \\
    two
one two
$ true
```

- in a list:

  ```python title="not run: no GPU here"
  load("x")
  ```

```text
plain
```
"""


def test_a_page_is_read_as_blocks_commands_and_what_they_print(page: Callable[[str], list[Block]]) -> None:
    console, python, plain = page(MARKED)
    assert [(c.text, c.shown, c.code) for c in commands_of(console)] == [
        ("echo one \\\n    two", ("one two",), 0),
        ("true", (), 0),
    ]
    assert (python.language, python.reason, python.text) == ("python", "no GPU here", 'load("x")')
    assert (plain.language, plain.line) == ("text", 17)
    assert [problems_of(block) for block in (console, python, plain)] == [[], [], []]


@pytest.mark.parametrize(
    "text",
    [
        "```sh\n$ ls\n```\n",
        "```\nedgeformer doctor\n```\n",
        "Words:\n\n    edgeformer doctor\n",
        "Words:\n\n    from edgeformer.runtime import load\n",
        '```console title="not run:"\n$ ls\n```\n',
        "```console not-run\n$ ls\n```\n",
        "```console\nls\n```\n",
    ],
)
def test_commands_that_no_test_would_run_are_refused(page: Callable[[str], list[Block]], text: str) -> None:
    (block,) = page(text)
    assert len(problems_of(block)) == 1


def test_a_planted_difference_is_found(page: Callable[[str], list[Block]], tmp_path: Path) -> None:
    for text in (
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ true\nerror: no such file\n```\n",
    ):
        (block,) = page(text)
        with pytest.raises(AssertionError, match="page.md:1"):
            run_console(block, tmp_path)
    (block,) = page("```python\nprint(1 + 1)  # 3\n```\n")
    with pytest.raises(AssertionError, match="page.md:1: 2"):
        run_python(block, tmp_path, {})


def test_output_is_as_shown_whatever_stands_for_anything() -> None:
    assert is_as_shown(("a  b", "-----", "..."), "a b\n──────────\nc\nd\n")
    assert is_as_shown(("...", "took ... s"), "x\ny\ntook 3.5 s\n")
    assert is_as_shown(("a", "", "b"), "a\nb\n\n")
    assert not is_as_shown(("a", "c"), "a\nb\nc\n")
    assert not is_as_shown(("a",), "a\nb\n")
    assert not is_as_shown(("...", "b"), "a\nbc\n")


def test_python_tells_what_it_prints() -> None:
    assert printed_by('print("a # b")  # a # b\nx = 1  # no print\nprint(x)\n') == ["a # b"]
