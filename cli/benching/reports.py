"""Pages of records: HTML that asks nothing of a network, Markdown, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgeformer.cli.benching import wording
from edgeformer.cli.benching.charts import chart
from edgeformer.cli.benching.figures import Named, figures
from edgeformer.cli.printing import print_line
from edgeformer.runtime.errors import OptionError, WriteError

FORMS = ("html", "md", "png")
# Nothing may be asked of anywhere, whatever a page holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def format_of(form: str | None, output: Path | None) -> str:
    """The format that was asked for, or that the output's name says.

    Raises:
        OptionError: there is no such format, or a picture has no file to go to.
    """
    chosen = form or (output.suffix.lstrip(".") if output and output.suffix else "html")
    chosen = "html" if chosen == "htm" else chosen
    if chosen not in FORMS:
        raise OptionError(f"format is {chosen!r}, expected one of {', '.join(FORMS)}")
    if chosen == "png" and output is None:
        raise OptionError("a picture needs a file: give --output")
    return chosen


def write_report(records: Sequence[Named], form: str, output: Path | None) -> None:
    """Write a page into a file, or to standard output.

    Args:
        records: each with a name.
        form: html, md or png.
        output: the file, which a picture needs.

    Raises:
        WriteError: the file cannot be written.
        BackendUnavailableError: a picture without matplotlib.
    """
    if form == "png" and output is not None:
        from edgeformer.cli.benching.pictures import write_picture

        write_picture(records, output)
        return
    text = html_page(records) if form == "html" else markdown(records)
    if output is None:
        print_line(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{output} cannot be written: {error.strerror or error}") from error


def html_page(records: Sequence[Named]) -> str:
    """One file: styles and charts are inside it."""
    style = (files("edgeformer.cli.benching") / "report.css").read_text(encoding="utf-8")
    title = ", ".join(name for name, _ in records)
    charts = "".join(chart(f.title, f.x, f.y, f.lines) for f in figures(records))
    body = "".join(section(name, record) for name, record in records)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>edgeformer bench: {escape(title)}</title><style>{style}</style></head>"
        f"<body><main><h1>edgeformer bench</h1>{body}<h2>Charts</h2><div class=charts>{charts}</div></main></body>"
        "</html>\n"
    )


def section(name: str, record: Mapping[str, Any]) -> str:
    """A record's own part: where it was measured, what disturbed it, its figures, and what is not supported."""
    noisy = wording.findings(record)
    verdict = f'<p class="{"noisy" if noisy else "quiet"}">{escape(wording.quiet(record))}</p>'
    lines = [wording.machine(record), origin(record), wording.ceilings(record)]
    lines += [wording.apart(artifact) for artifact in record["artifacts"]]
    facts = [f"{key}: {value}" for key, value in record["facts"].items()]
    rows = "".join(f"<tr>{cells(row)}</tr>" for row in wording.cell_rows(record))
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in wording.COLUMNS)
    return (
        f"<section><h2>{escape(name)}</h2>{verdict}{listed([*lines, *facts])}"
        f"<div class=scroll><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"<p class=note>{escape(wording.LEGEND)}</p>"
        f"<details><summary>Settings, and what this machine does not tell</summary>"
        f"{listed([*settings(record), *wording.lacking(record)])}</details></section>"
    )


def cells(row: Sequence[str]) -> str:
    first, *others = row
    return f'<th scope="row">{escape(first)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in others)


def listed(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def origin(record: Mapping[str, Any]) -> str:
    bundle = record["bundle"]
    return (
        f"bundle {Path(bundle['path']).name} ({bundle['model_type']}), SHA-256 {bundle['sha256'][:16]}, "
        f"edgeformer at {record['commit'][:16]}, {record['created']}"
    )


def settings(record: Mapping[str, Any]) -> list[str]:
    return [f"{key}: {value}" for key, value in record["settings"].items()]


def markdown(records: Sequence[Named]) -> str:
    """Tables and lines for an issue or a pull request."""
    parts = []
    for name, record in records:
        lines = [wording.machine(record), origin(record), wording.ceilings(record)]
        lines += [wording.apart(artifact) for artifact in record["artifacts"]]
        lines += [f"{key}: {value}" for key, value in record["facts"].items()]
        parts += [f"## {name}", "", f"**{wording.quiet(record)}**", "", *(f"- {line}" for line in lines), ""]
        parts += [row_of(wording.COLUMNS), row_of(["---", *["---:"] * len(wording.NUMBERS)])]
        parts += [row_of(row) for row in wording.cell_rows(record)]
        parts += ["", wording.LEGEND, "", *(f"- {line}" for line in (*settings(record), *wording.lacking(record))), ""]
    return "\n".join(parts)


def row_of(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
