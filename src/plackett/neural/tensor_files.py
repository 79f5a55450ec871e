"""Files of tensors that one or several processes write.

There is one file whatever the number of processes. Each process writes its own rows; when all rows are on disk, the
first process completes the header and renames the file. So the file appears completely or not at all, and any number of
processes can read it. The header holds the hash of each part, so a process can read and check only the rows it needs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Self

import torch
from torch import Tensor

from plackett.data.untrusted import parse_json, regular_file
from plackett.errors import DataError
from plackett.losses.sparse_columns import Shard
from plackett.neural.training import SingleProcess

_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.complex64: "C64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.bool: "BOOL",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_TYPES_BY_NAME = {name: dtype for dtype, name in _TYPES.items()}
KEY = "plackett"
_UNKNOWN = "0" * 64  # in place of a hash
_LARGEST_HEADER = 100_000_000  # bytes, as in the format's own library
_BYTES_AT_ONCE = 1 << 24

Parts = dict[str, list[list[Any]]]
"""By name: [first row, last row + 1, hash], in order."""


def shard_of(shards: Mapping[str, Shard], name: str, dimensions: int) -> Shard | None:
    """The shard of a tensor in `shards`, or of the tensor whose optimiser state it is; None if it is not sharded."""
    if dimensions == 0:
        return None
    return shards.get(name) or shards.get(name.rpartition(".")[0])


def contents(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


@dataclass(frozen=True)
class _Place:
    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int  # in the file, from the end of the header
    end: int

    @property
    def row(self) -> int:
        """Bytes per row."""
        return (self.end - self.begin) // max(1, self.shape[0] if self.shape else 1)

    @classmethod
    def parse(cls, about: dict[str, Any]) -> Self:
        """Check and read an entry of a header, which anyone may have written."""
        dtype, shape, (begin, end) = _TYPES_BY_NAME[about["dtype"]], tuple(about["shape"]), about["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or len(shape) > 64:
            raise ValueError("shapes and offsets must be whole numbers")
        if math.prod(size for size in shape if size) >= 1 << 62 or end - begin != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{dtype} of shape {shape} does not fit bytes {begin} to {end}")
        return cls(shape, dtype, begin, end)


def checksum(
    tensors: Mapping[str, Tensor] | Mapping[str, _Place],
    text: str,
    parts: Parts,
    bytes_of: Callable[[str], Iterable[memoryview]],
) -> str:
    """The checksum of a file, which detects flipped bits; the format itself has none. Parts enter by their hashes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        for piece in [json.dumps(parts[name]).encode()] if name in parts else bytes_of(name):
            digest.update(piece)
    return digest.hexdigest()


class StoredTensors:
    """An open file of tensors. The header is checked at once; rows are read on demand.

    The file is not mapped into memory: the system refuses that for files larger than memory.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LARGEST_HEADER):
            raise ValueError("its header is cut off")
        header = parse_json(file.read(length))
        stored = parse_json(header.pop("__metadata__")[KEY])
        self.checksum, self._text, self._parts = stored["sha256"], stored["about"], stored.get("parts", {})
        self._places = {name: _Place.parse(about) for name, about in header.items()}
        self._start = end = 8 + length
        for place in sorted(self._places.values(), key=lambda place: (place.begin, place.end)):
            if self._start + place.begin != end:
                raise ValueError("its tensors do not follow each other")
            end = self._start + place.end
        if end != size:
            raise ValueError(f"it has {size:,} bytes, and should have {end:,}")

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def read(self, shards: Mapping[str, Shard]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors and their description; of tensors in shards, the rows held here. Damage raises an error."""
        about = parse_json(self._text, finite=False)  # a metric may be NaN
        if not isinstance(about, dict):
            raise ValueError("its description is not a JSON object")
        held = {name: self._held(name, shards) for name in self._places}
        tensors = {name: self._rows(name, rows) for name, rows in held.items()}

        def bytes_of(name: str) -> Iterator[memoryview]:
            shape = self._places[name].shape
            return self._bytes_of(name, range(shape[0] if shape else 1), held[name], tensors[name])

        if self.checksum != checksum(self._places, self._text, self._parts, bytes_of):
            raise ValueError("its checksum differs")
        for name in self._parts:
            self._check_parts(name, held[name], tensors[name])
        return tensors, about

    def _held(self, name: str, shards: Mapping[str, Shard]) -> range:
        """The rows of a tensor that are held here; a scalar counts as one row."""
        shape = self._places[name].shape
        shard = shard_of(shards, name, len(shape))
        if shard is None:
            return range(shape[0] if shape else 1)
        if shape[0] != shard.columns:
            raise ValueError(f"{name} must have {shard.columns} rows, got {shape[0]}")
        return range(shard.first, shard.last)

    def _rows(self, name: str, rows: range) -> Tensor:
        place = self._places[name]
        tensor = torch.empty((len(rows), *place.shape[1:]) if place.shape else (), dtype=place.dtype)
        self._file.seek(self._start + place.begin + rows.start * place.row)
        if self._file.readinto(contents(tensor)) != len(rows) * place.row:  # type: ignore[attr-defined]
            raise ValueError("it was cut off while it was read")
        return tensor

    def _bytes_of(self, name: str, rows: range, held: range, tensor: Tensor) -> Iterator[memoryview]:
        """The bytes of rows: those held here from memory, the others from the file."""
        row = self._places[name].row
        yield from self._blocks(name, rows.start, held.start)
        own = contents(tensor)
        yield own[max(0, rows.start - held.start) * row : (min(rows.stop, held.stop) - held.start) * row]
        yield from self._blocks(name, held.stop, rows.stop)

    def _blocks(self, name: str, first: int, last: int) -> Iterator[memoryview]:
        place = self._places[name]
        left = (last - first) * place.row
        self._file.seek(self._start + place.begin + first * place.row)
        while left > 0:
            block = self._file.read(min(left, _BYTES_AT_ONCE))
            if not block:
                raise ValueError("it was cut off while it was read")
            left -= len(block)
            yield memoryview(block)

    def _check_parts(self, name: str, held: range, tensor: Tensor) -> None:
        """Raise an error if a part with rows held here does not match its hash."""
        end, rows = 0, self._places[name].shape[0]
        for begin, end_of_part, expected in self._parts[name]:
            if begin != end or not isinstance(end_of_part, int) or not begin <= end_of_part <= rows:
                raise ValueError(f"the parts of {name} do not follow each other")
            end = end_of_part
            if begin < held.stop and end > held.start:
                digest = hashlib.sha256()
                for piece in self._bytes_of(name, range(begin, end), held, tensor):
                    digest.update(piece)
                if digest.hexdigest() != expected:
                    raise ValueError(f"the checksum of {name}, rows {begin} to {end - 1}, differs")
        if end != rows:
            raise ValueError(f"the parts of {name} end at row {end}, not {rows}")


@contextmanager
def open_tensors(
    path: str | os.PathLike[str], *, sha256: str | None = None, checksum: str | None = None
) -> Iterator[StoredTensors]:
    """Open a file of tensors. A defect of the file raises a DataError; errors of the system pass through.

    Args:
        sha256: the expected hash of the file; checking it reads the complete file.
        checksum: the expected checksum in the header; `read` checks the rows it reads against it.
    """
    try:
        with regular_file(Path(path)).open("rb") as file:
            is_right = sha256 is None or hashlib.file_digest(file, "sha256").hexdigest() == sha256
            file.seek(0)
            stored = StoredTensors(file) if is_right else None
            if stored is None or (checksum is not None and stored.checksum != checksum):
                raise DataError(
                    "the weights are not those that were saved: cut off, changed, or of another model",
                    file=os.fspath(path),
                    remedy="Save the model again",
                )
            yield stored
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError("there is no such file", file=os.fspath(path)) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"not a readable file of tensors ({error})", file=os.fspath(path)) from error


def _places(tensors: Mapping[str, Tensor], shards: Mapping[str, Shard]) -> dict[str, _Place]:
    """The place of each complete tensor. Tensors with larger numbers come first, which aligns all of them."""
    found, begin = {}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        tensor, shard = tensors[name], shard_of(shards, name, tensors[name].dim())
        shape = tuple(tensor.shape) if shard is None else (shard.columns, *tensor.shape[1:])
        end = begin + tensor.element_size() * int(torch.Size(shape).numel())
        found[name] = _Place(shape, tensor.dtype, begin, end)
        begin = end
    return found


def _header(places: Mapping[str, _Place], stored: dict[str, Any]) -> bytes:
    about: dict[str, Any] = {"__metadata__": {KEY: json.dumps(stored)}}
    for name, place in places.items():
        offsets = [place.begin, place.end]
        about[name] = {"dtype": _TYPES[place.dtype], "shape": list(place.shape), "data_offsets": offsets}
    text = json.dumps(about, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_alone(file: IO[bytes], tensors: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Write a file of tensors that this process holds completely. A tied weight is written twice."""
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    places, text = _places(own, {}), json.dumps(about)
    total = checksum(places, text, {}, lambda name: [contents(own[name])])
    file.write(_header(places, {"sha256": total, "about": text}))
    for name in places:
        file.write(contents(own[name]))


class _SharedFile:
    """A file that all processes write to. The first process calls `begin` and `complete`; all call `write`."""

    def __init__(
        self, path: Path, tensors: Mapping[str, Tensor], about: dict[str, Any], shards: Mapping[str, Shard]
    ) -> None:
        self.path, self.text = path, json.dumps(about)
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        self.tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        self.places = _places(self.tensors, shards)
        held = {name: shard_of(shards, name, tensor.dim()) for name, tensor in self.tensors.items()}
        self.held = {name: shard for name, shard in held.items() if shard is not None}

    def header(self, hashes: list[dict[str, str]] | None = None) -> bytes:
        """The header. Its length is the same whether the hashes of the parts are known yet or not."""
        parts: Parts = {}
        for name, own in self.held.items():
            several = [replace(own, number=number) for number in range(own.count)]
            parts[name] = [[s.first, s.last, hashes[s.number][name] if hashes else _UNKNOWN] for s in several]
        stored: dict[str, Any] = {"sha256": _UNKNOWN, "about": self.text, "parts": parts}
        if hashes:
            stored["sha256"] = checksum(self.places, self.text, parts, lambda name: [contents(self.tensors[name])])
        return _header(self.places, stored)

    def begin(self) -> tuple[Path, int]:
        """Create the file at its full size; returns its path and the end of its header."""
        start = len(self.header())
        with self.temporary.open("xb") as file:
            file.truncate(start + max((place.end for place in self.places.values()), default=0))
        return self.temporary, start

    def write(self, start: int, names: Iterable[str]) -> dict[str, str]:
        """Write these tensors; of those in shards, the rows held here. Returns the hashes of the latter."""
        with self.temporary.open("rb+") as file:
            for name in names:
                first = self.held[name].first if name in self.held else 0
                file.seek(start + self.places[name].begin + first * self.places[name].row)
                file.write(contents(self.tensors[name]))
            file.flush()
            os.fsync(file.fileno())
        return {name: hashlib.sha256(contents(self.tensors[name])).hexdigest() for name in self.held}

    def complete(self, hashes: list[dict[str, str]]) -> None:
        with self.temporary.open("rb+") as file:
            file.write(self.header(hashes))
            file.flush()
            os.fsync(file.fileno())
        self.temporary.replace(self.path)


def write_together(
    path: Path,
    tensors: Mapping[str, Tensor],
    about: dict[str, Any],
    shards: Mapping[str, Shard],
    processes: SingleProcess,
) -> None:
    """Write a file of tensors together. Of the tensors in `shards` each process holds some rows. All must call it.

    Other tensors and the description come from the first process.
    """
    shared = _SharedFile(path, tensors, about, shards)
    try:
        shared.temporary, start = processes.from_first(lambda: shared.begin() if processes.is_first else (path, 0))
        names = shared.tensors if processes.is_first else shared.held if processes.rank == 0 else ()
        hashes = processes.gather(lambda: shared.write(start, names))[: processes.shards]
        processes.from_first(lambda: shared.complete(hashes) if processes.is_first else None)
    except BaseException:
        shared.temporary.unlink(missing_ok=True)
        raise
