"""Where a measurement comes from: the commit of this program, and the hash of the bundle."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
from pathlib import Path

UNKNOWN = "not known"


def commit() -> str:
    """The commit that this program was installed from, `-changed` where its files were changed since."""
    place = Path(__file__).parent
    head = git(place, "rev-parse", "HEAD")
    if head is not None and git(place, "ls-files", "--error-unmatch", Path(__file__).name) is not None:
        return head + ("-changed" if git(place, "status", "--porcelain", "--untracked-files=no") else "")
    return installed_commit() or UNKNOWN


def git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def installed_commit() -> str | None:
    """Of an installation from a repository, as pip records it."""
    try:
        text = importlib.metadata.distribution("edgeformer").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    found = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    return str(found) if found else None


def bundle_hash(folder: Path) -> str:
    """SHA-256 of the manifest, which holds that of every file: two bundles of one hash have the same content."""
    return hashlib.sha256((folder / "bundle.json").read_bytes()).hexdigest()
