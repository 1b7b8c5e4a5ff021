"""What is written takes its place whole or not at all, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeformer.exporter import staging
from edgeformer.exporter.staging import staged
from edgeformer.runtime.errors import OutputExistsError, WriteError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with nothing else in it."""
    return tmp_path / "place"


@pytest.fixture
def bundle(place: Path) -> Path:
    """Something that looks like a bundle."""
    folder = place / "bundle"
    (folder / "onnx").mkdir(parents=True)
    (folder / "bundle.json").write_text("{}")
    (folder / "onnx" / "weights.data").write_bytes(b"old weights")
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder, None for folders."""
    found = {}
    for path in folder.rglob("*"):
        found[path.relative_to(folder).as_posix()] = None if path.is_dir() else path.read_bytes()
    return found


def write(output: Path, content: str = "new", **options: object) -> None:
    with staged(output, **options) as folder:  # type: ignore[arg-type]
        (folder / "onnx").mkdir(exist_ok=True)
        (folder / "bundle.json").unlink(missing_ok=True)
        (folder / "bundle.json").write_text(content)


# It ends well


def test_a_new_folder_takes_its_place_with_its_parents(place: Path) -> None:
    write(place / "a" / "b" / "bundle")
    assert tree(place) == {"a": None, "a/b": None, "a/b/bundle": None, "a/b/bundle/bundle.json": b"new"} | {
        "a/b/bundle/onnx": None
    }


def test_nothing_is_in_its_place_before_the_end(place: Path) -> None:
    with staged(place / "bundle") as folder:
        (folder / "bundle.json").write_text("new")
        assert not (place / "bundle").exists()
        assert folder.parent == place, "beside it, so that renaming is enough"
        assert folder.name.startswith(".")
    assert not folder.exists()


def test_an_empty_folder_is_taken(place: Path) -> None:
    (place / "bundle").mkdir(parents=True)
    write(place / "bundle")
    assert tree(place) == {"bundle": None, "bundle/bundle.json": b"new", "bundle/onnx": None}


def test_a_bundle_is_replaced_whole_where_that_is_allowed(bundle: Path) -> None:
    write(bundle, overwrite=True)
    assert tree(bundle.parent) == {"bundle": None, "bundle/bundle.json": b"new", "bundle/onnx": None}


def test_it_can_be_read_by_others(place: Path) -> None:
    write(place / "bundle")
    assert (place / "bundle").stat().st_mode & 0o777 == 0o755


def test_it_begins_with_another_folder_which_stays_as_it_was(bundle: Path) -> None:
    before = tree(bundle)
    write(bundle.with_name("copy"), begin_with=bundle)
    assert tree(bundle) == before
    assert tree(bundle.with_name("copy")) == {**before, "bundle.json": b"new"}
    same = (bundle / "onnx" / "weights.data", bundle.with_name("copy") / "onnx" / "weights.data")
    assert same[0].samefile(same[1]), "hard links: weights may be large"


def test_where_there_are_no_hard_links_files_are_copied(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    write(bundle, begin_with=bundle, overwrite=True)
    assert tree(bundle) == {"onnx": None, "onnx/weights.data": b"old weights", "bundle.json": b"new"}


def test_the_present_folder_can_be_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "bundle").mkdir(parents=True)
    monkeypatch.chdir(place)
    write(Path("bundle"))
    assert (place / "bundle" / "bundle.json").read_text() == "new"


def test_a_link_to_a_bundle_stays_a_link_and_what_it_leads_to_is_replaced(bundle: Path) -> None:
    link = bundle.with_name("link")
    link.symlink_to("bundle")
    write(link, overwrite=True)
    assert link.is_symlink()
    assert (bundle / "bundle.json").read_text() == "new"
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["bundle", "link"]


# It does not


def fail(output: Path, crash: BaseException, **options: object) -> None:
    """Half of the work, and then a crash."""
    with staged(output, **options) as folder:  # type: ignore[arg-type]
        shutil.rmtree(folder / "onnx", ignore_errors=True)
        (folder / "half").write_text("written")
        raise crash


CRASHES = [RuntimeError("a bug"), KeyboardInterrupt(), SystemExit(1), MemoryError(), GeneratorExit()]


@pytest.mark.parametrize("crash", CRASHES, ids=repr)
def test_a_crash_leaves_the_earlier_bundle_whole_and_nothing_else(bundle: Path, crash: BaseException) -> None:
    before = tree(bundle.parent)
    with pytest.raises(type(crash)):
        fail(bundle, crash, begin_with=bundle, overwrite=True)
    assert tree(bundle.parent) == before


@pytest.mark.parametrize("crash", CRASHES, ids=repr)
def test_a_crash_where_nothing_was_leaves_nothing(place: Path, crash: BaseException) -> None:
    with pytest.raises(type(crash)):
        fail(place / "bundle", crash)
    assert tree(place) == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_a_full_disk_is_one_clear_error_and_the_earlier_bundle_stays(bundle: Path, number: int) -> None:
    before = tree(bundle.parent)
    with pytest.raises(WriteError) as caught:
        fail(bundle, OSError(number, os.strerror(number)), overwrite=True)
    message = str(caught.value)
    assert message.startswith(f"writing {bundle} failed: {os.strerror(number)}: ")
    assert message.endswith("nothing that was there before has changed")
    assert tree(bundle.parent) == before


def test_a_disk_that_is_full_before_anything_is_written_is_the_same(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = tree(bundle.parent)
    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(WriteError, match="No space left on device"):
        write(bundle, begin_with=bundle, overwrite=True)
    monkeypatch.setattr(staging.tempfile, "mkdtemp", full)
    with pytest.raises(WriteError, match="No space left on device: choose another place"):
        write(bundle, overwrite=True)
    assert tree(bundle.parent) == before


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_while_it_takes_its_place_puts_the_earlier_bundle_back(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Of the two renamings, the old one out and the new one in, either may fail."""
    before, calls, rename = tree(bundle.parent), iter(range(1, 9)), Path.rename

    def fail(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(WriteError, match="Permission denied"):
        write(bundle, overwrite=True)
    assert tree(bundle.parent) == before


# It is refused


def foreign(place: Path) -> Iterator[Path]:
    """Things that are no bundles."""
    (place / "file").write_text("precious")
    yield place / "file"
    (place / "photos").mkdir()
    (place / "photos" / "one.jpg").write_text("precious")
    yield place / "photos"
    (place / "hidden").mkdir()
    (place / "hidden" / ".git").mkdir()
    yield place / "hidden"
    (place / "odd").mkdir()
    (place / "odd" / "bundle.json").mkdir()
    yield place / "odd"
    (place / "link").symlink_to("photos")
    yield place / "link"


def write_twice_at_once(output: Path) -> None:
    """The one that began first ends last."""
    with staged(output, begin_with=output, overwrite=True) as folder:
        (folder / "bundle.json").unlink()
        (folder / "bundle.json").write_text("begun first")
        write(output, "done first", begin_with=output, overwrite=True)


def test_what_another_program_has_put_there_meanwhile_is_not_lost(bundle: Path) -> None:
    with pytest.raises(OutputExistsError, match="has changed meanwhile, by another program: run this again"):
        write_twice_at_once(bundle)
    assert (bundle / "bundle.json").read_text() == "done first"
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_not_a_bundle_is_never_replaced(place: Path, overwrite: bool) -> None:
    place.mkdir()
    for output in foreign(place):
        before = tree(place)
        with pytest.raises(OutputExistsError, match="exists and is not a bundle: choose another output"):
            write(output, overwrite=overwrite)
        assert tree(place) == before


def test_a_bundle_is_not_replaced_unless_that_is_asked_for(bundle: Path) -> None:
    before = tree(bundle.parent)
    with pytest.raises(OutputExistsError, match="holds a bundle already: choose another output, or pass --overwrite"):
        write(bundle)
    assert tree(bundle.parent) == before


def test_a_place_below_a_file_is_refused(bundle: Path) -> None:
    before = tree(bundle.parent)
    with pytest.raises(WriteError, match="Not a directory|File exists"):
        write(bundle / "bundle.json" / "below")
    assert tree(bundle.parent) == before
