"""The commands of a page, and whether a program's output is what the page shows.

The convention of every page (docs/writing.md tells it to writers):

- ```` ```console ```` holds commands behind `$ `, with what they print below; `...` is anything, in a line or
  lines. A command whose shown output has a line `error: ...` exits with 1, every other one with 0.
- ```` ```python ```` holds Python; the blocks of a page are one program. Behind a `print`, `  # text` is what it
  prints.
- `title="not run: REASON"` behind either says that no test runs it, and why. The site shows it above the block.
- `title="NAME.py"` behind the language makes the block that file, for the commands below it.
- Commands stand in no other kind of block.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

RUN = ("console", "python")
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>.*)$")
NOT_RUN = re.compile(r'^ title="not run: (?P<reason>[^"]+)"$')
FILE = re.compile(r'^ title="(?P<name>[\w/-]+\.\w+)"$')
LOOKS_LIKE_A_COMMAND = re.compile(r"^\s*(\$ |(edgeformer|make|pip|python3?|sudo|apt|docker|git|import|from)\b)")
ANYTHING = "..."


@dataclasses.dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    options: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why no test runs it, None where one does."""
        told = NOT_RUN.match(self.options)
        return told["reason"] if told else None

    @property
    def file(self) -> str | None:
        """The file that it is, None where it is none."""
        told = FILE.match(self.options)
        return told["name"] if told else None


@dataclasses.dataclass(frozen=True)
class Command:
    text: str
    shown: tuple[str, ...]

    @property
    def code(self) -> int:
        return int(any(line.startswith("error: ") for line in self.shown))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, and the indented ones, whose language is `indented`."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at, after_blank = 0, True
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            if after_blank and lines[at].startswith("    ") and lines[at].strip():
                end = next((i for i in range(at, len(lines)) if lines[i][:4].strip()), len(lines))
                found.append(Block(page, at + 1, "indented", "", "\n".join(lines[at:end])))
                at = end
                continue
            after_blank = not lines[at].strip()
            at += 1
            continue
        closing = re.compile(rf"^ *{fence['ticks']}`*$")
        end = next(i for i in range(at + 1, len(lines)) if closing.match(lines[i]))
        text = "\n".join(line.removeprefix(fence["indent"]) for line in lines[at + 1 : end])
        language, space, options = fence["info"].partition(" ")
        found.append(Block(page, at + 1, language, space + options, text))
        at, after_blank = end + 1, True
    return found


def problems_of(block: Block) -> list[str]:
    """What keeps a test from running a block that is not marked, or what is wrong with its marking."""
    if block.file is not None:
        return []
    if block.language not in RUN:
        if LOOKS_LIKE_A_COMMAND.search(block.text.lstrip("\n")):
            return [f"{block.place}: begins with a command: make it a block of `console` or `python`"]
        return []
    if block.options and block.reason is None:
        return [
            f'{block.place}: {block.options.strip()!r} behind the language, expected title="not run: REASON", or a file'
        ]
    if block.language == "console" and not block.text.startswith("$ "):
        return [f"{block.place}: a block of `console` begins with `$ `"]
    return []


def commands_of(block: Block) -> list[Command]:
    """A console block's commands, each with the output that is shown below it."""
    found: list[Command] = []
    for part in re.split(r"(?m)^\$ ", block.text)[1:]:
        lines = part.rstrip("\n").split("\n")
        last = next((i for i, line in enumerate(lines) if not line.endswith("\\")), len(lines) - 1)
        found.append(Command("\n".join(lines[: last + 1]), tuple(lines[last + 1 :])))
    return found


def printed_by(code: str) -> list[str]:
    """What a Python block says that its lines print."""
    return [line.rpartition("  # ")[2] for line in code.split("\n") if re.match(r"\s*print\(.*\)  # ", line)]


def is_as_shown(shown: tuple[str, ...], printed: str) -> bool:
    """Whether output is what a page shows: spaces and rules may be longer or shorter, `...` is anything."""
    pattern = ""
    for line in map(squeezed, shown):
        if line == ANYTHING:
            pattern += r"(?:[^\n]*\n)*?"
        elif line:
            pattern += r"\n*" + re.escape(line).replace(re.escape(ANYTHING), r"[^\n]*?") + r" *\n"
    lines = "".join(f"{squeezed(line)}\n" for line in printed.split("\n"))
    return re.fullmatch(pattern + r"\n*", lines) is not None


def squeezed(line: str) -> str:
    return re.sub(r"[─-]{3,}", "─", " ".join(line.split()))
