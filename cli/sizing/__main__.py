"""Writes the generated part of docs/sizing.md anew: python -m edgeformer.cli.sizing [PATH]."""

from __future__ import annotations

import sys
from pathlib import Path

from edgeformer.cli.sizing.tables import devices_markdown

BEGIN, END = "<!-- devices -->\n", "\n<!-- end of devices -->"


def main(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END.lstrip())[2]
    path.write_text(f"{head}{BEGIN}\n{devices_markdown()}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/sizing.md"))
