"""JSON and arrays from files that anyone may have written.

Nothing is executed, and no declared size is trusted: memory use depends on the bytes actually present. Errors are
ValueErrors; the caller adds the file name.
"""

from __future__ import annotations

import io
import json
import math
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plackett.errors import DataError

_MOST_DIGITS = 300

# NumPy parses this header with Python's own parser, which can fail in many more ways.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{ *'descr': *'([<>|=]?[biufU]\d{1,9})', *'fortran_order': *(True|False), *"
    rb"'shape': *\(([\d, ]{0,200})\),? *\} *\n",
    re.DOTALL,
)
_LARGEST = 1e150  # about the square root of the largest number


def regular_file(path: Path) -> Path:
    """Return the path if it is a regular file, not a link (which may lead anywhere), a pipe or a device."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise DataError("expected a file, got a link, a folder, a pipe or a device", file=str(path))
    return path


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Parse strict JSON: each name once per object, numbers finite (unless `finite=False`), limited nesting."""
    numbers: Callable[[str], float] = _finite if finite else float
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=numbers, parse_constant=numbers
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the JSON has the same name twice in one object")
    return found


def _integer(text: str) -> int:
    """An integer that is also finite as a float: Python's own have no limit, and conversion fails later."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"the JSON contains {text[:40]}..., a number with more than {_MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the JSON contains {text[:40]}, which is not a finite number")
    return value


def parse_array(content: bytes) -> npt.NDArray[Any]:
    """Parse an array of numbers or strings in the format of `np.save`."""
    header = _ARRAY.match(content)
    if header is None:
        raise ValueError("not a NumPy array of numbers or strings")
    try:
        dtype, shape = np.dtype(header[1].decode()), tuple(int(word) for word in header[3].replace(b",", b" ").split())
    except TypeError as error:
        raise ValueError(f"an array of unknown type ({error})") from None
    size, count = len(content) - header.end(), math.prod(shape)
    if count * dtype.itemsize != size:
        raise ValueError(f"an array of type {dtype} and shape {shape} does not fit {size:,} bytes")
    flat = np.frombuffer(content, dtype, count, header.end()).copy()
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C")


def parse_arrays(stored: IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Parse named arrays in the format of `np.savez`, which does not compress: compressed members are refused."""
    try:
        with zipfile.ZipFile(stored) as archive:
            members = archive.infolist()
            room = stored.seek(0, io.SEEK_END)
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("expected uncompressed arrays, got compressed ones")
            if sum(member.file_size for member in members) > room:
                raise ValueError("the arrays are larger than the file")
            return {member.filename.removesuffix(".npy"): parse_array(archive.read(member)) for member in members}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"not a NumPy file of arrays ({error})") from None


def field(description: dict[str, Any], name: str, *kinds: type) -> Any:
    """A value of a description by name, which must have one of these types."""
    value = description[name]
    if float in kinds and type(value) is int:  # JSON has one type of number, and many programs write 1.0 as 1
        value = float(value)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def check_numbers(name: str, values: npt.NDArray[np.float64]) -> None:
    """Check numbers of a model on disk: finite, and small enough that their products are finite."""
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if not -_LARGEST <= low <= high <= _LARGEST:  # false for NaN, too
        raise ValueError(f"{name} must be from {-_LARGEST:g} to {_LARGEST:g}, got {low} to {high}")
