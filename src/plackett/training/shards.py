"""Files of tensors that several processes hold in shards.

One file in the format of `write_tensors`, whatever the number of processes: each writes its own rows into it, and when
all are on disk the first one completes the header and gives the file its name. So it is there as a whole or not at all,
and any number of processes can read it. The hash of each part stands in the header: who needs some rows reads those.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plackett.losses.sharded import Shard
from plackett.training.workers import Workers

_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
KEY = "plackett"
_UNKNOWN = "0" * 64  # in place of a hash

Parts = dict[str, list[list[Any]]]
"""By name: [first row, last row + 1, hash], in order."""


def shard_of(shards: Mapping[str, Shard], name: str, tensor: Tensor) -> Shard | None:
    """Of which shard a tensor holds the rows: one that is named, or a part of the state of one that is named."""
    if tensor.dim() == 0:
        return None
    return shards.get(name) or shards.get(name.rpartition(".")[0])


def contents(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def checksum(tensors: Mapping[str, Tensor], text: str, parts: Parts) -> str:
    """Of a file: the format itself has none, and a flipped bit would go unnoticed. Parts count by their hashes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(json.dumps(parts[name]).encode() if name in parts else contents(tensors[name]))
    return digest.hexdigest()


def take(tensors: Mapping[str, Tensor], shards: Mapping[str, Shard]) -> dict[str, Tensor]:
    """The tensors, and of those in shards the rows held here."""
    taken = {}
    for name, tensor in tensors.items():
        shard = shard_of(shards, name, tensor)
        if shard is not None and len(tensor) != shard.columns:
            raise ValueError(f"{name} must have {shard.columns} rows, got {len(tensor)}")
        taken[name] = tensor if shard is None else tensor[shard.first : shard.last].clone()
    return taken


def check_parts(tensors: Mapping[str, Tensor], parts: Parts, shards: Mapping[str, Shard]) -> None:
    """An error if parts with rows that are held here are not what was written."""
    for name, several in parts.items():
        tensor, end = tensors[name], 0
        shard = shard_of(shards, name, tensor) or Shard(len(tensor))
        for begin, end_of_part, expected in several:
            if begin != end or not isinstance(end_of_part, int) or not begin <= end_of_part <= len(tensor):
                raise ValueError(f"the parts of {name} do not follow each other")
            end = end_of_part
            is_held = begin < shard.last and end > shard.first
            if is_held and hashlib.sha256(contents(tensor[begin:end])).hexdigest() != expected:
                raise ValueError(f"the checksum of {name}, rows {begin} to {end - 1}, differs")
        if end != len(tensor):
            raise ValueError(f"the parts of {name} end at row {end}, not {len(tensor)}")


@dataclass(frozen=True)
class _Place:
    shape: tuple[int, ...]
    kind: torch.dtype
    begin: int  # in the file, from the end of the header
    end: int

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return (self.end - self.begin) // max(1, self.shape[0] if self.shape else 1)


def _places(tensors: Mapping[str, Tensor], shards: Mapping[str, Shard]) -> dict[str, _Place]:
    """Where each whole tensor goes. The larger its numbers the earlier, which aligns them all."""
    found, begin = {}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        tensor, shard = tensors[name], shard_of(shards, name, tensors[name])
        shape = tuple(tensor.shape) if shard is None else (shard.columns, *tensor.shape[1:])
        end = begin + tensor.element_size() * int(torch.Size(shape).numel())
        found[name] = _Place(shape, tensor.dtype, begin, end)
        begin = end
    return found


def _header(places: Mapping[str, _Place], stored: dict[str, Any]) -> bytes:
    about: dict[str, Any] = {"__metadata__": {KEY: json.dumps(stored)}}
    for name, place in places.items():
        offsets = [place.begin, place.end]
        about[name] = {"dtype": _TYPES[place.kind], "shape": list(place.shape), "data_offsets": offsets}
    text = json.dumps(about, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class _SharedFile:
    """A file that all processes write to. Who calls what: `begin` and `complete` the first one, `write` all."""

    def __init__(
        self, path: Path, tensors: Mapping[str, Tensor], about: dict[str, Any], shards: Mapping[str, Shard]
    ) -> None:
        self.path, self.text = path, json.dumps(about)
        self.tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        self.places = _places(self.tensors, shards)
        held = {name: shard_of(shards, name, tensor) for name, tensor in self.tensors.items()}
        self.held = {name: shard for name, shard in held.items() if shard is not None}

    def header(self, hashes: list[dict[str, str]] | None = None) -> bytes:
        """Of one length, whether the hashes of the parts are known yet or not."""
        parts: Parts = {}
        for name, own in self.held.items():
            several = [replace(own, number=number) for number in range(own.count)]
            parts[name] = [[s.first, s.last, hashes[s.number][name] if hashes else _UNKNOWN] for s in several]
        stored: dict[str, Any] = {"sha256": _UNKNOWN, "about": self.text, "parts": parts}
        if hashes:
            shapes = {name: (self.places[name].shape, self.places[name].kind) for name in parts}
            wholes = {name: torch.empty(shape, dtype=kind, device="meta") for name, (shape, kind) in shapes.items()}
            stored["sha256"] = checksum(self.tensors | wholes, self.text, parts)
        return _header(self.places, stored)

    def begin(self) -> tuple[Path, int]:
        """The file, of its full size, and where its header ends."""
        temporary, start = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.part"), len(self.header())
        with temporary.open("xb") as file:
            file.truncate(start + max((place.end for place in self.places.values()), default=0))
        return temporary, start

    def write(self, temporary: Path, start: int, names: Iterable[str]) -> dict[str, str]:
        """These tensors, or the rows of them that are held here; the hashes of the latter."""
        with temporary.open("rb+") as file:
            for name in names:
                first = self.held[name].first if name in self.held else 0
                file.seek(start + self.places[name].begin + first * self.places[name].row)
                file.write(contents(self.tensors[name]))
            file.flush()
            os.fsync(file.fileno())
        return {name: hashlib.sha256(contents(self.tensors[name])).hexdigest() for name in self.held}

    def complete(self, temporary: Path, hashes: list[dict[str, str]]) -> None:
        with temporary.open("rb+") as file:
            file.write(self.header(hashes))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def write_together(
    path: Path, tensors: Mapping[str, Tensor], about: dict[str, Any], shards: Mapping[str, Shard], workers: Workers
) -> None:
    """Write a file of tensors, of which `shards` names those that each process holds some rows of. All must call it.

    What is not in shards, and what it is about, is that of the first process.
    """
    shared = _SharedFile(path, tensors, about, shards)
    temporary, start = workers.from_first(lambda: shared.begin() if workers.is_first else (path, 0))
    try:
        names = shared.tensors if workers.is_first else shared.held if workers.rank == 0 else ()
        hashes = workers.gather(lambda: shared.write(temporary, start, names))[: workers.shards]
        workers.from_first(lambda: shared.complete(temporary, hashes) if workers.is_first else None)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
