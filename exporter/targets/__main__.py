"""Writes the generated part of docs/targets.md anew: python -m edgeformer.exporter.targets [PATH]."""

from __future__ import annotations

import sys
from pathlib import Path

from edgeformer.exporter.targets.table import markdown

BEGIN, END = "<!-- table -->\n", "\n<!-- end of table -->"


def main(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END.lstrip())[2]
    path.write_text(f"{head}{BEGIN}\n{markdown()}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/targets.md"))
