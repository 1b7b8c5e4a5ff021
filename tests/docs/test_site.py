"""The site: it builds without a warning, holds every option and every public name, and asks nothing of any network."""

from __future__ import annotations

import functools
import html
import http.server
import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="the site is built on Python 3.11 and newer")

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
PAGES = [
    "index.html",
    "getting-started.html",
    "api.html",
    "cli.html",
    "targets.html",
    "source/models/protocols.py.html",
]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does: a link that leads nowhere, or a page that no menu has, would end it."""
    folder = tmp_path_factory.mktemp("site")
    build(ROOT / "mkdocs.yml", folder)
    return folder


def build(config: Path, folder: Path) -> None:
    call = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(
        call, cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_command_line_has_every_option_of_every_command(site: Path) -> None:
    import typer.main

    from edgeformer.cli.main import app

    page = html.unescape(re.sub(r"<[^>]+>", "", (site / "cli.html").read_text(encoding="utf-8")))
    missing: list[str] = []
    seen = 0

    def look(name: str, command: Any) -> None:
        nonlocal seen
        part = page[page.rindex(f"{name}¶") :] if f"{name}¶" in page else ""
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                seen += 1
                if option not in part:
                    missing.append(f"{name} {option}")
        for child, below in getattr(command, "commands", {}).items():
            look(f"{name} {child}", below)

    command: Any = typer.main.get_command(app)
    for name, below in command.commands.items():
        look(f"edgeformer {name}", below)
    assert missing == []
    assert seen > 80
    assert "\b" not in page


@pytest.mark.slow
def test_the_python_page_has_every_public_name(site: Path) -> None:
    from edgeformer import runtime
    from edgeformer.runtime import errors

    page = (site / "api.html").read_text(encoding="utf-8")
    names = [f"edgeformer.runtime.{name}" for name in runtime.__all__ if name != "errors"]
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    names += [
        f"edgeformer.runtime.errors.{kind.__name__}" for kind in kinds if issubclass(kind, errors.EdgeformerError)
    ]
    assert [name for name in names if f'id="{name}"' not in page] == []


class Loads(HTMLParser):
    """What a page loads, and the classes of its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.classes |= set((values.get("class") or "").split())
        if tag in LOADED and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get(LOADED[tag]) or "")


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = Loads()
        found.feed(page.read_text(encoding="utf-8"))
        assert [address for address in found.addresses if re.match(r"(https?:)?//", address)] == [], page
        assert "mermaid" not in found.classes, page  # for which the theme would fetch a library
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']+", sheet.read_text(encoding="utf-8")) == []


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site's address while it is served on this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


LOOK = """<!doctype html><body style="margin:0"><script>
const found = {{}}, pages = {pages};
const frame = document.body.appendChild(document.createElement("iframe"));
frame.style = "border:0;width:{width}px;height:900px";
frame.onload = () => setTimeout(() => {{
  const inner = frame.contentWindow, root = inner.document.documentElement;
  found[pages[0]] = {{beyond: root.scrollWidth - root.clientWidth, title: inner.document.title,
    requests: inner.performance.getEntriesByType("resource").map(entry => entry.name),
    scheme: inner.document.body.dataset.mdColorScheme}};
  document.body.dataset.found = JSON.stringify(found);
  pages.shift();
  if (pages.length) frame.src = pages[0];
}}, 300);
frame.src = pages[0];
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1400, False)])
def test_a_browser_shows_pages_that_fit_and_ask_nothing_of_others(
    site: Path, served: str, tmp_path: Path, width: int, dark: bool
) -> None:
    (site / "look.html").write_text(LOOK.format(width=width, pages=json.dumps(PAGES)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1500,900", "--virtual-time-budget=20000", "--dump-dom"]  # fmt: skip
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run([str(BROWSER), *options, f"{served}/look.html"], capture_output=True, text=True, timeout=120)
    matched = re.search(r'data-found="([^"]*)"', done.stdout)
    assert matched, done.stderr[-2000:]
    found = json.loads(html.unescape(matched[1]))
    assert list(found) == PAGES
    for page, seen in found.items():
        assert "edgeformer" in seen["title"], page
        assert len(seen["requests"]) >= 3, page
        assert [name for name in seen["requests"] if not name.startswith((served, "data:", "blob:"))] == [], page
        assert seen["beyond"] == 0, page  # nothing makes the page wider than the screen
        assert seen["scheme"] == ("slate" if dark else "default"), page


@pytest.fixture(scope="session")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "building" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_out_of_the_pages_lead_to_what_they_name(hooks: ModuleType) -> None:
    text = "[a](../models/protocols.py) [b](bench.md#x) [c](https://example.org) ![d](../examples/g2p/curve.png)"
    assert hooks.links_out(Path("a.md"), text) == [Path("models/protocols.py"), Path("examples/g2p/curve.png")]
    readme = Path("source/examples/own_decoder/index.md")  # shows examples/own_decoder/README.md
    assert hooks.links_out(readme, "[p](../../models/protocols.py) [d](../../docs/bench.md)") == [
        Path("models/protocols.py")
    ]
    assert hooks.shown_at(hooks.named(readme, "../../docs/bench.md")) == "bench.md"
    assert hooks.shown_at(hooks.named(readme, "model.py")) == "source/examples/own_decoder/model.py.md"
    assert hooks.links_out(Path("source/models/a.py.md"), "[code](../nothing.py)") == []  # a list in a program


def test_a_link_to_what_is_not_there_is_a_warning(hooks: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert hooks.links_out(Path("a.md"), "[a](../models/nothing.py)") == []
    assert "a.md links to models/nothing.py, which is not in the repository" in caplog.text


def test_what_has_run_where_is_the_readme_s(hooks: ModuleType) -> None:
    told = hooks.status()
    assert told.startswith("# What has run where\n")
    assert "](docs/" not in told
    assert "Apache" not in told
    assert told.count("\n| ") > 10
