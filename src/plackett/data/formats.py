"""Format detection, and reading a file of any format."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.files import Source, ending, is_path, open_source, read_stored, source_name
from plackett.data.frames import load_parquet
from plackett.data.letor import load_letor, load_lightgbm
from plackett.data.preflib import KINDS, load_preflib
from plackett.data.rankings_csv import load_rankings_csv
from plackett.data.xmc import load_xmc
from plackett.errors import DataError

Data = RankingData | MultilabelData | Ballots


@dataclass(frozen=True)
class Format:
    title: str
    load: Callable[..., Data]
    endings: tuple[str, ...]
    opening: re.Pattern[bytes] | None = None


_PREFLIB = re.compile(rb"#\s*(FILE NAME|TITLE|DATA TYPE|NUMBER (ALTERNATIVES|VOTERS)|ALTERNATIVE NAME \d+)\s*:")

FORMATS = {
    "parquet": Format("Parquet table of items", load_parquet, (".parquet", ".pq"), re.compile(rb"PAR1")),
    "preflib": Format("PrefLib ballots", load_preflib, tuple(f".{kind}" for kind in KINDS), _PREFLIB),
    "csv": Format("CSV of rankings", load_rankings_csv, (".csv", ".tsv")),
    "xmc": Format("XMC sparse text", load_xmc, (), re.compile(rb"\d+[ \t]+\d+[ \t]+\d+[ \t]*\r?$", re.MULTILINE)),
    "letor": Format(
        "LETOR / SVMlight text",
        load_letor,
        (),
        re.compile(rb"(\s*#[^\n]*\n)*\s*[-+.\d][-+.\deE]*[ \t]+(qid:|\d+:)", re.MULTILINE),
    ),
    "lightgbm": Format("LightGBM text, features counted from 0", load_lightgbm, ()),
}


def detect_format(source: Source) -> str:
    """Detect the format of a file, a key of `FORMATS`, from its suffix or else from its first bytes."""
    suffix = ending(source)
    for name, form in FORMATS.items():
        if suffix in form.endings:
            return name
    with open_source(source) as file:
        head = file.read(4096).removeprefix(codecs.BOM_UTF8)
    if not head:
        raise DataError("the file is empty", file=source_name(source))
    for name, form in FORMATS.items():
        if form.opening is not None and form.opening.match(head):
            return name
    raise DataError(
        "unknown format, expected one of " + ", ".join(form.title for form in FORMATS.values()),
        file=source_name(source),
        text=head[:60].decode("utf-8", "replace"),
        remedy="If the file has one of these formats, pass format=" + "|".join(FORMATS),
    )


def load(source: Source, *, format: str | None = None, **options: Any) -> Data:  # noqa: A002 - as pandas and friends
    """Read a file of any known format, by default the one that `detect_format` finds; `options` go to its reader."""
    return read_any(source, format, **options)[1]


def read_any(source: Source, name: str | None = None, *, width: int | None = None, **options: Any) -> tuple[str, Data]:
    """Return the name of the format and the data. `width` is the number of features if the format does not state it."""
    if name is not None and name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}")
    if not is_path(source):
        stream = io.BytesIO(read_stored(source))
        stream.name = source_name(source)
        source = stream
    if name is None:
        name = detect_format(source)
        if isinstance(source, io.BytesIO):
            source.seek(0)
    if name in ("letor", "lightgbm") and width is not None:
        options["n_features"] = width
    return name, FORMATS[name].load(source, **options)
