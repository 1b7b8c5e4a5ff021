"""Pages, Markdown and pictures of records; and a browser that looks at a page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgeformer.cli.benching.charts import Axis, chart, short
from edgeformer.cli.benching.figures import figures
from edgeformer.cli.benching.reports import format_of, html_page, markdown, write_report
from edgeformer.runtime.errors import BackendUnavailableError, OptionError, WriteError

MakeRecord = Callable[..., dict[str, Any]]
VOID = {"meta", "br"}
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")


class Balanced(HTMLParser):
    """Every tag is closed, in order; names of tags and values of attributes are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read_page(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_a_page_is_whole_and_asks_nothing_of_a_network(make_record: MakeRecord) -> None:
    page = html_page([("before", make_record()), ("after", make_record(0.03, seed=1))])
    parser = read_page(page)
    assert not {"script", "link", "img", "iframe", "image", "use"} & set(parser.tags)
    assert not {"src", "href", "srcset", "xlink:href"} & parser.names
    assert re.findall(r"https?:|//|@import|url\(", page) == []
    assert "default-src 'none'" in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_a_page_says_what_was_measured(make_record: MakeRecord) -> None:
    record = make_record()
    page = html_page([("today", record)])
    cell = record["artifacts"][0]["cells"][1]
    assert f"{cell['e2e_ms']['p50']['value']:.2f} [" in page
    assert f"<td>{cell['tokens_per_second']['value']:.1f}</td>" in page
    assert "nothing disturbed it" in page
    assert "gpu: nvidia-ml-py is not installed" in page
    assert "10.0 GB/s read from memory" in page
    for title in ("time to first token", "between tokens", "whole calls", "Throughput against batch", "Roofline",
                  "power (W) over time", "clock (MHz) over time"):  # fmt: skip
        assert title in page


def test_noise_is_said_first(make_record: MakeRecord) -> None:
    record = make_record()
    record["artifacts"][0]["noise"]["findings"] = [{"kind": "load", "said": "other processes kept 1.00 cores busy"}]
    for text in (html_page([("today", record)]), markdown([("today", record)])):
        assert "NOISY" in text
        assert text.index("1.00 cores busy") < text.index("| artifact" if "| artifact" in text else "<table")


def test_a_run_whose_noise_cannot_be_seen_is_not_called_quiet(make_record: MakeRecord) -> None:
    record = make_record()
    record["artifacts"][0]["noise"]["other_cores"] = "not supported"
    text = markdown([("today", record)])
    assert "nothing disturbed it" not in text
    assert "nothing was seen to disturb it; other work on the cores: not supported" in text


def test_names_cannot_break_a_page(make_record: MakeRecord) -> None:
    name = '<script>alert("1")</script>'
    page = html_page([(name, make_record(artifact=name)), ("b", make_record())])
    assert "script" not in read_page(page).tags
    assert escape(name) in page


def test_markdown_has_a_row_for_every_cell(make_record: MakeRecord) -> None:
    text = markdown([("today", make_record())])
    rows = [line for line in text.splitlines() if line.startswith("| ort-cpu-fp32")]
    assert len(rows) == 2
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_charts_are_well_formed_and_points_lie_inside(make_record: MakeRecord) -> None:
    for figure in figures([("a", make_record()), ("b", make_record(0.5, seed=1))]):
        drawn = chart(figure.title, figure.x, figure.y, figure.lines)
        svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", drawn, re.DOTALL)[0])  # type: ignore[index]
        width, height = map(float, svg.attrib["viewBox"].split()[2:])
        for line in svg.iter("polyline"):
            for point in line.attrib["points"].split():
                across, down = map(float, point.split(","))
                assert 0 <= across <= width
                assert 0 <= down <= height
        assert 2 <= len(figure.x.ticks()) <= 12
        assert 2 <= len(figure.y.ticks()) <= 12


def test_axes_place_numbers() -> None:
    log = Axis("x", 1.0, 100.0, log=True)
    assert log.share(10) == pytest.approx(0.5)
    assert log.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert Axis("x", 19.0, 43.0, log=True).ticks() == [20, 25, 30, 35, 40]
    plain = Axis.of("y", [0, 87], zero=True)
    assert plain.least == 0
    assert plain.ticks() == [0, 20, 40, 60, 80]
    assert Axis.of("y", [5.0, 5.0]).least < 5 < Axis.of("y", [5.0, 5.0]).most
    assert [short(v) for v in (0.05, 12, 1500, 2.5e9)] == ["0.05", "12", "1.5k", "2.5G"]


def test_a_record_of_one_token_has_no_chart_of_steps(make_record: MakeRecord) -> None:
    record = make_record()
    record["ceilings"] = "not supported"
    for cell in record["artifacts"][0]["cells"]:
        cell["samples"]["itl"], cell["itl_ms"] = [[] for _ in cell["samples"]["itl"]], None
        cell["roofline"]["step"] = cell["energy"] = "not supported"
    titles = [figure.title for figure in figures([("a", record)])]
    assert not any("between tokens" in title or "Roofline" in title for title in titles)
    read_page(html_page([("a", record)]))


def test_a_picture_is_drawn(make_record: MakeRecord, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.png"
    write_report([("today", make_record())], "png", path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_picture_without_matplotlib_says_what_to_install(
    make_record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeformer.cli.benching.pictures.find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match="pip install matplotlib"):
        write_report([("today", make_record())], "png", tmp_path / "report.png")


def test_the_format_follows_the_name(tmp_path: Path) -> None:
    assert format_of(None, Path("a.md")) == "md"
    assert format_of(None, Path("a.htm")) == format_of(None, None) == format_of(None, Path("a")) == "html"
    assert format_of("png", Path("a.html")) == "png"
    with pytest.raises(OptionError, match="expected one of html, md, png"):
        format_of(None, Path("a.pdf"))
    with pytest.raises(OptionError, match="--output"):
        format_of("png", None)
    with pytest.raises(WriteError, match="cannot be written"):
        write_report([], "md", tmp_path / "nowhere" / "a.md")


# A page beside the report that looks at it from outside, since the report itself allows no script.
LOOK = """<!doctype html><body style="margin:0"><iframe id="page" style="border:0;width:{width}px;height:800px"
srcdoc="{page}"></iframe><script>
document.getElementById("page").onload = (event) => {{
  const inner = event.target.contentWindow, root = inner.document.documentElement;
  const box = (selector) => inner.document.querySelector(selector).getBoundingClientRect();
  document.body.dataset.found = JSON.stringify({{
    beyond: root.scrollWidth - root.clientWidth, requests: inner.performance.getEntriesByType("resource").length,
    charts: inner.document.querySelectorAll("svg").length, chart: box("svg").width, right: box("figure").right,
    paper: inner.getComputedStyle(inner.document.body).backgroundColor}});
}};</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1400, False)])
def test_a_browser_shows_the_page_without_any_request(
    make_record: MakeRecord, tmp_path: Path, width: int, dark: bool
) -> None:
    page = html_page([("today", make_record())])
    (tmp_path / "look.html").write_text(LOOK.format(width=width, page=escape(page, quote=True)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1500,900", "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [str(BROWSER), *options, (tmp_path / "look.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    matched = re.search(r'data-found="([^"]*)"', done.stdout)
    assert matched, done.stderr[-2000:]
    found = json.loads(matched[1].replace("&quot;", '"'))
    assert found["requests"] == 0
    assert found["beyond"] == 0  # nothing makes the page wider than the screen
    assert found["right"] <= width
    assert found["charts"] == len(figures([("today", make_record())])) == 7
    assert found["chart"] > min(width, 600) * 0.7
    assert found["paper"] == ("rgb(18, 22, 29)" if dark else "rgb(255, 255, 255)")
