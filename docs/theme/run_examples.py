"""Run the examples and keep what they print and draw for the gallery, in docs/gallery.

python docs/theme/run_examples.py [NAME ...]
"""

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"


def run_example(path: Path, folder: Path) -> str:
    """Run an example in a folder, where it puts its picture, and return what it prints."""
    printed, before = io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        os.chdir(before)
    return printed.getvalue()


def note_origin() -> None:
    """Write down when, where and with which versions the gallery was made."""
    from plackett.report.versions import today, versions

    (GALLERY / "made.json").write_text(json.dumps({"date": today(), "versions": versions()}, indent=1) + "\n")


def main() -> None:
    GALLERY.mkdir(exist_ok=True)
    for path in sorted((ROOT / "examples").glob("*.py")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (GALLERY / f"{path.stem}.txt").write_text(run_example(path, Path(folder)))
            for picture in Path(folder).glob("*.png"):
                (GALLERY / picture.name).write_bytes(picture.read_bytes())
        print(f"{path.name} ran")
    note_origin()


if __name__ == "__main__":
    main()
