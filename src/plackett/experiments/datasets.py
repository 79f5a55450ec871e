"""Find the papers' data sets on disk.

A data folder holds one subfolder per data set, named as in `KNOWN`, with the publisher's file names, compressed or not.
The data folder is the given path, else $PLACKETT_DATA, else ../shared/data relative to the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KNOWN: Mapping[str, str] = {
    "delicious-1k": "D-1K: train.txt, test.txt (XMC repository)",
    "eurlex-4k": "E-4K: train.txt, test.txt (XMC repository)",
    "wiki10-31k": "W-31K: train.txt, test.txt (XMC repository)",
    "delicious-200k": "D-200K: train.txt, test.txt (XMC repository)",
    "mq2008": "LETOR 4.0 MQ2008: S1.txt to S5.txt",
    "mslr-sample": "rows of MSLR-WEB10K: train.txt, test.txt",
    "mslr-web10k": "MSLR-WEB10K: Fold1 to Fold5, each with train.txt, vali.txt, test.txt",
    "mslr-web30k": "MSLR-WEB30K, as MSLR-WEB10K",
    "yahoo-ltrc": "Yahoo LTRC set 1: set1.train.txt, set1.valid.txt, set1.test.txt",
}
ENDINGS = ("", ".xz", ".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class DataFolder:
    """The folder to search for data sets; `path=None` means the default places."""

    path: Path | None = None

    def __post_init__(self) -> None:
        if self.path is not None and not self.path.is_dir():
            raise ValueError(f"data must be a folder with one subfolder per data set, got {self.path}")

    def find(self, name: str) -> Path | None:
        """Return the folder of a data set, or None if it is not available."""
        if name not in KNOWN:
            raise ValueError(f"name must be one of {', '.join(KNOWN)}, got {name!r}")
        for root in self._roots():
            if (folder := root / name).is_dir():
                return folder
        return None

    def file(self, name: str, *parts: str) -> Path:
        """Return the path of a data set's file, compressed or not; raise FileNotFoundError if there is none."""
        folder = self.find(name)
        if folder is None:
            raise FileNotFoundError(f"no folder {name}; set PLACKETT_DATA or --data to the folder that contains it")
        for ending in ENDINGS:
            if (path := folder.joinpath(*parts[:-1], parts[-1] + ending)).exists():
                return path
        raise FileNotFoundError(f"no {'/'.join(parts)} in {folder}, compressed or not")

    def present(self) -> list[str]:
        return [name for name in KNOWN if self.find(name)]

    def _roots(self) -> list[Path]:
        if self.path is not None:
            return [self.path]
        named = os.environ.get("PLACKETT_DATA")
        return [Path(named)] if named else [Path.cwd().parent / "shared" / "data"]
