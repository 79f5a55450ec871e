"""JSON and arrays from files that anyone may have written.

Nothing is executed, and no size that a file declares is believed: memory goes by the bytes that are there. Errors are
ValueErrors; who reads the file names it.
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

# NumPy itself has Python's parser read this, which has more ways to fail than are worth having.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{ *'descr': *'([<>|=]?[biufU]\d{1,9})', *'fortran_order': *(True|False), *"
    rb"'shape': *\(([\d, ]{0,200})\),? *\} *\n",
    re.DOTALL,
)


def regular_file(path: Path) -> Path:
    """The path, if it is that of a file; not of a link, which may lead anywhere, a pipe or a device."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise DataError("expected a file, got a link, a folder, a pipe or a device", file=str(path))
    return path


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """A JSON text as the standard has it: each name once, numbers finite (unless told), and not nested too deeply."""
    numbers: Callable[[str], float] = _finite if finite else float
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_whole, parse_float=numbers, parse_constant=numbers
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the JSON has a name twice in one object")
    return found


def _whole(text: str) -> int:
    """Which is finite as a float too: Python's own have no limit, and fail where they meet one."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"the JSON holds {text[:40]}..., a number of more than {_MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the JSON holds {text[:40]}, which is no number")
    return value


def parse_array(content: bytes) -> npt.NDArray[Any]:
    """An array as `np.save` writes it, of numbers or texts."""
    header = _ARRAY.match(content)
    if header is None:
        raise ValueError("not an array of numbers or texts as NumPy writes it")
    try:
        dtype, shape = np.dtype(header[1].decode()), tuple(int(word) for word in header[3].replace(b",", b" ").split())
    except TypeError as error:
        raise ValueError(f"an array of a type that is not known ({error})") from None
    size, count = len(content) - header.end(), math.prod(shape)
    if count * dtype.itemsize != size:
        raise ValueError(f"an array of {dtype} and shape {shape} in {size:,} bytes")
    flat = np.frombuffer(content, dtype, count, header.end()).copy()
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C")


def parse_arrays(stored: IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name as `np.savez` writes them. It does not compress, so what is compressed is not from it."""
    try:
        with zipfile.ZipFile(stored) as archive:
            members = archive.infolist()
            room = stored.seek(0, io.SEEK_END)
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("compressed arrays, expected plain ones")
            if sum(member.file_size for member in members) > room:
                raise ValueError("arrays that are larger than the file")
            return {member.filename.removesuffix(".npy"): parse_array(archive.read(member)) for member in members}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"not a file of arrays ({error})") from None
