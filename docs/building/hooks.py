"""What the docs site gets beside the pages in docs/: the command line, parts of other files, and files linked to.

Links out of docs/ (`../models/protocols.py`) work in the repository; in the site they lead to a page that shows the
file, or the folder with its README. A link to what is not there is a warning, which --strict makes a failure.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# A link or picture whose address is relative: `](../models/protocols.py#anchor)`.
LINK = re.compile(r"\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"
log = get_plugin_logger("docs")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, content in {
        "cli.md": command_line(),
        "changelog.md": read("CHANGELOG.md"),
        "status.md": status(),
    }.items():
        files.append(File.generated(config, name, content=content))
    written = [(Path(file.src_uri), file.content_string) for file in files.documentation_pages()]
    while written:
        page, text = written.pop()
        for path in links_out(page, text):
            uri = shown_at(path)
            if uri in files.src_uris:
                continue
            if (ROOT / path).suffix == ".png":
                files.append(File.generated(config, uri, content=(ROOT / path).read_bytes()))
                continue
            content = show(path)
            files.append(File.generated(config, uri, content=content))
            written.append((Path(uri), content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to the pages that show what they name."""
    uri = Path(page.file.src_uri)
    if is_listing(uri):
        return markdown
    return LINK.sub(
        lambda link: f"]({os.path.relpath(shown_at(named(uri, link[1])), uri.parent)}{link[2] or ''})", markdown
    )


def command_line() -> str:
    """Every command and option, as typer tells them of the program itself; an example keeps its lines."""
    call = [sys.executable, "-m", "typer", "edgeformer.cli.main", "utils", "docs", "--name", "edgeformer"]
    told = subprocess.run(call, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"}).stdout
    examples = re.compile(r"\n+\x08?\nExample:\n((?:  .+\n)+)")  # the backspace tells typer's help not to fold it
    told = examples.sub(lambda found: f"\n\n**Example**:\n\n```text\n{dedent(found[1])}```\n", told)
    return told.replace("# `edgeformer`", "# Command line\n\nWritten from the program itself.", 1)


def status() -> str:
    """What the README says has run where, with its links as they are from among the pages."""
    _, heading, rest = read("README.md").partition("## What has run where\n")
    section = (heading + rest).partition("\n## ")[0]
    return section.replace("## ", "# ", 1).replace("](docs/", "](")


def read(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def links_out(page: Path, text: str) -> list[Path]:
    """What a page links to outside docs/, from the top of the repository; what is missing is a warning."""
    if is_listing(page):
        return []
    found = dict.fromkeys(named(page, link[1]) for link in LINK.finditer(text))
    out = [path for path in found if path.parts[0] != "docs"]
    for path in out:
        if not (ROOT / path).exists():
            log.warning(f"{page} links to {path}, which is not in the repository")
    return [path for path in out if (ROOT / path).exists()]


def is_listing(page: Path) -> bool:
    """Whether a page shows a file of code, in which nothing is a link."""
    return page.parts[0] == "source" and len(page.suffixes) > 1


def named(page: Path, link: str) -> Path:
    """What a link of a page names, from the top of the repository."""
    folder = page.relative_to("source").parent if page.parts[0] == "source" else "docs" / page.parent
    return Path(os.path.normpath(folder / link))


def shown_at(path: Path) -> str:
    """The page or picture of the site that shows a file or folder of the repository."""
    if path.parts[0] == "docs":
        return path.relative_to("docs").as_posix()
    if (ROOT / path).is_dir():
        return f"source/{path.as_posix()}/index.md"
    return f"source/{path.as_posix()}" + ("" if path.suffix in (".md", ".png") else ".md")


def show(path: Path) -> str:
    """A page with a file, or with the README and the modules of a folder."""
    if (ROOT / path).is_dir():
        readme = ROOT / path / "README.md"
        if readme.exists():
            return HIDDEN + read(readme)
        modules = sorted(file for file in (ROOT / path).glob("*.py") if file.name != "__init__.py")
        rows = "".join(f"| [`{file.name}`]({file.name}) | {first_line(file)} |\n" for file in modules)
        return f"{HIDDEN}# {path.as_posix()}/\n\n| file | what it is |\n|---|---|\n{rows}"
    text = read(path)
    if path.suffix == ".md":
        return HIDDEN + text
    return f"{HIDDEN}# {path.as_posix()}\n\n``````{LANGUAGES.get(path.suffix, 'text')}\n{text}``````\n"


def first_line(module: Path) -> str:
    return (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]
