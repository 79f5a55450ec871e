"""Fuzz every reader and model loader with altered files: each must give a valid result or a clean error.

    python tests/fuzz.py                                    five minutes
    python tests/fuzz.py --minutes 60                       an hour
    python tests/fuzz.py --only letor xmc --inputs 3000 --seed 7

Each target runs in a separate process, so that a crash is counted and another process continues. Accepted input is
written and read again: a different result is a silent wrong read. Hashes are updated after an alteration, as an
attacker would do.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import hashlib
import io
import json
import math
import multiprocessing
import os
import pty
import random
import re
import resource
import select
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tty
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from matplotlib.figure import Figure

from plackett import data
from plackett.aggregation import load_edges
from plackett.compilation import kernel
from plackett.data import sparse_text
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.files import save_figure
from plackett.data.preflib import tiers_of
from plackett.errors import DataError
from plackett.estimators import (
    BoostedRanker,
    CoordinateAscentRanker,
    ExtremeClassifier,
    LinearRanker,
    NeuralRanker,
    RankAggregator,
    load_model,
)
from plackett.neural.checkpoints import read_tensors, write_tensors
from plackett.report.page import KeyValues, Page, Section, write_page

LONGEST = 20.0  # seconds for one input
UNHURRIED = 600.0  # the same if kernels must be compiled first or the machine is busy
_MOST_CRASHES = 50  # per target
_RNG = np.random.default_rng(5)
X, Y = _RNG.normal(size=(40, 3)), _RNG.integers(0, 3, 40)
GROUP = [20, 20]
LABELS = _RNG.random((40, 6)) < 0.3

Mutator = Callable[[bytes, random.Random], bytes]


class SilentlyWrong(Exception):  # noqa: N818 - a finding, not an error of the code here
    """Reading, writing and reading again gives a different result."""


class Counted(Exception):  # noqa: N818 - the same
    """A finding that does not end the run: "crashes", "hangs" or "silent wrong reads" of another process."""

    def __init__(self, kind: str, description: str) -> None:
        self.kind = kind
        super().__init__(description)


# Alterations

_TOKENS = (
    b"\n", b" ", b":", b",", b"#", b"\0", b"\r", b"{", b"}", b"[", b"]", b"-", b"e", b"nan", b"inf", b'"', b"=",
    b"9" * 25, b"\xff", b"\xef\xbb\xbf", b"\x1b[2J",
)  # fmt: skip
_NUMBERS = (
    b"0", b"1", b"-1", b"2", b"-2", b"127", b"128", b"255", b"65536", b"2147483647", b"2147483648", b"-2147483648",
    b"4294967296", b"9223372036854775807", b"1000000000000", b"1e308", b"1e999", b"-1e-320", b"0.5", b"nan", b"-inf",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 10**9, 10**12, 10**30, -(10**12), 1.5, 1e300, "", "x", "../../etc/passwd", "/etc/passwd",
    "builtins.eval", "__class__", [], [[]], [10**9], [1] * 1000, {}, {"x": 1}, "nan",
)  # fmt: skip


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One to four alterations of bytes, numbers and lines."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice((_alter_bytes, _alter_bytes, _alter_number, _alter_number, _alter_lines))(content, rng)
    return content


def _alter_bytes(content: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(content))
    new = rng.choice(_TOKENS) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 4))
    match rng.choice(("flip", "replace", "insert", "delete", "cut", "run", "repeat")):
        case "flip" if content:
            at = min(at, len(content) - 1)
            return content[:at] + bytes([content[at] ^ 1 << rng.randint(0, 7)]) + content[at + 1 :]
        case "replace":
            return content[:at] + new + content[at + len(new) :]
        case "insert":
            return content[:at] + new + content[at:]
        case "delete":
            return content[:at] + content[at + rng.randint(1, 30) :]
        case "cut":
            return content[:at] if rng.random() < 0.3 else content
        case "run":
            return content[:at] + rng.choice(_TOKENS) * rng.choice((100, 3000)) + content[at:]
        case _:
            return content[:at] + content[at // 2 : at] + content[at:]


def _alter_number(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?", content))
    if not found:
        return content
    one = rng.choice(found)
    return content[: one.start()] + rng.choice(_NUMBERS) + content[one.end() :]


def _alter_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.choice(("swap", "delete", "double", "move")):
        case "swap":
            lines[i], lines[j] = lines[j], lines[i]
        case "delete":
            del lines[i]
        case "double":
            lines.insert(j, lines[i])
        case _:
            lines.insert(j, lines.pop(i))
    return b"\n".join(lines)


def mutate_binary(content: bytes, rng: random.Random) -> bytes:
    """One to three bytes replaced, mostly in the last two thirds, which contain the metadata of a Parquet file."""
    altered = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(content) if rng.random() < 0.25 else len(content) // 3 * 2)
        byte = altered[-1 - at]
        altered[-1 - at] = rng.choice((0, 1, 127, 128, 255, byte ^ 1 << rng.randint(0, 7), rng.randrange(256)))
    return bytes(altered)


def mutate_json(content: bytes, rng: random.Random, whole: bool = False) -> bytes:
    """Values of a JSON text replaced or removed; sometimes bytes altered, unless it must stay valid."""
    if not whole and rng.random() < 0.2:
        return mutate(content, rng)
    document = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        parents = list(_containers(document))
        parent = rng.choice(parents)
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        if keys:
            key = rng.choice(keys)
            if rng.random() < 0.15:
                del parent[key]
            else:
                parent[key] = copy.deepcopy(rng.choice(_VALUES))  # the next alteration may be inside it
    return json.dumps(document).encode()


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _containers(part)


# Readers


def _same(a: Any, b: Any) -> bool:
    """Whether two containers have equal contents."""
    if isinstance(a, Ballots):
        weights = np.array_equal(a.weights, b.weights) and [set(map(tuple, map(sorted, t))) for t in tiers_of(a)] == [
            set(map(tuple, map(sorted, t))) for t in tiers_of(b)
        ]
        order = [[sorted(t) for t in x] for x in tiers_of(a)] == [[sorted(t) for t in x] for x in tiers_of(b)]
        return weights and order and list(a.names) == list(b.names)
    if isinstance(a, MultilabelData):
        return all(_same_matrix(p, q) for p, q in ((a.X, b.X), (a.Y, b.Y)))
    if isinstance(a, RankingData):
        rest = all(np.array_equal(p, q) for p, q in ((a.y, b.y), (a.qid, b.qid), (a.offsets, b.offsets)))
        ids = (a.ids is None) == (b.ids is None) and (a.ids is None or list(a.ids) == list(b.ids))
        return rest and ids and _same_matrix(a.X, b.X)
    return np.array_equal(a, b)


def _same_matrix(a: Any, b: Any) -> bool:
    if hasattr(a, "indptr"):
        return a.shape == b.shape and all(
            np.array_equal(getattr(a, name), getattr(b, name), equal_nan=name == "data")
            for name in ("indptr", "indices", "data")
        )
    return np.array_equal(a, b, equal_nan=True)


def round_trip(read: Callable[..., Any], write: Callable[..., None], **options: Any) -> Callable[[bytes], None]:
    def run(content: bytes) -> None:
        found = read(io.BytesIO(content))
        written = io.BytesIO()
        try:
            write(found, written)
        except ValueError:
            return  # the format cannot represent it, and the writer says so
        if isinstance(found, RankingData) and options.get("sized"):
            again = read(io.BytesIO(written.getvalue()), n_features=found.X.shape[1])
        else:
            again = read(io.BytesIO(written.getvalue()))
        if not _same(found, again):
            raise SilentlyWrong(written.getvalue()[:200])

    return run


def _sparse_letor(source: Any, **options: Any) -> Any:
    return data.load_letor(source, sparse=True, unsorted="sort", scattered="group", first_index=0, **options)


def _write_edges(ballots: Ballots, target: io.BytesIO) -> None:
    names, items = ballots.names, ballots.items.tolist()
    if any(
        not name.isprintable() or name != name.strip() or '"' in name or "," in name or name[0] == "#" for name in names
    ):
        raise ValueError("a name that needs quotes")
    lines = [
        f"{names[a]},{names[b]},{w!r}"
        for a, b, w in zip(items[::2], items[1::2], ballots.weights.tolist(), strict=True)
    ]
    target.write("\n".join(["winner,loser,weight", *lines]).encode())


def _load_npy(source: io.BytesIO) -> Any:
    source.name = "scores.npy"  # type: ignore[attr-defined]
    return data.load_scores(source, _SCORED)


def _save_npy(scores: Any, target: io.BytesIO) -> None:
    np.save(target, scores)


_LISTS = RankingData(np.ones((3, 2)), np.ones(3), np.array([1, 1, 2]), np.array([0, 2, 3]))
_SCORED = RankingData(np.zeros((3, 1)), np.zeros(3), np.zeros(3), np.array([0, 3]))
_PAIRED = data.load_xmc(io.BytesIO(b"2 1 5\n0 0:1\n1 0:1\n"))


def _seed_of(write: Callable[..., None], value: Any) -> bytes:
    target = io.BytesIO()
    write(value, target)
    return target.getvalue()


_LETOR = b"2 qid:1 1:0.5 2:-3e-2 # docid = a\n0 qid:1 1:7\n1 qid:2 3:1.25\n"
READERS: dict[str, tuple[bytes, Callable[[bytes], None]]] = {
    "letor": (_LETOR, round_trip(data.load_letor, data.dump_letor, sized=True)),
    "letor, sparse": (
        b"2 qid:1 2:0.5 0:-3e-2\n0 qid:2 1:7\n1 qid:1 3:nan\n",
        round_trip(_sparse_letor, lambda d, t: data.dump_letor(d, t, first_index=0), sized=True),
    ),
    "group": (b"3\n2\n10\n", round_trip(data.load_group, data.dump_group)),
    "xmc": (b"3 4 5\n1,2 0:1 3:0.5\n 1:2\n4,0\n", round_trip(data.load_xmc, data.dump_xmc)),
    "preflib": (
        b"# DATA TYPE: toi\n# NUMBER ALTERNATIVES: 3\n# ALTERNATIVE NAME 1: a\n2: 1,{2,3}\n1: 3\n",
        round_trip(data.load_preflib, data.dump_preflib),
    ),
    "csv, ranks": (b"a,b,c\n1,2,2\n,1,\n3,1,2\n", round_trip(data.load_rankings_csv, data.dump_rankings_csv)),
    "csv, places": (
        b"place1,place2\nx,y=z\ny,\n",
        round_trip(data.load_rankings_csv, lambda d, t: data.dump_rankings_csv(d, t, layout="places")),
    ),
    "edges": (b"winner,loser,weight\nAda,Bob,3\nBob,Eve,1\nEve,Ada,2.5\n", round_trip(load_edges, _write_edges)),
    "parquet": (
        _seed_of(data.dump_parquet, _LISTS),
        round_trip(data.load_parquet, data.dump_parquet),
    ),
    "scores": (b"0.5\n-1e3\n7\n", round_trip(lambda s: data.load_scores(s, _SCORED), data.dump_scores)),
    "scores, npy": (_seed_of(_save_npy, np.array([0.5, 1.0, 2.0])), round_trip(_load_npy, _save_npy)),
    "scores of labels": (
        b"0:1 3:0.5\n4:2\n",
        round_trip(lambda s: data.load_scores(s, _PAIRED).toarray(), lambda a, t: data.dump_scores(_csr(a), t)),
    ),
    "any format": (_LETOR, lambda content: str(data.load(io.BytesIO(content)))),  # type: ignore[dict-item]
}


def _parquet(**options: Any) -> bytes:
    """A table with text columns, stored with these options."""
    import pyarrow
    import pyarrow.parquet

    columns = {"label": [1.0, 0.0, 2.0, 1.0], "qid": [1, 1, 2, 2], "x1": [0.5, 0.25, 1.0, 2.0], "id": list("abcd")}
    return _seed_of(
        lambda table, target: pyarrow.parquet.write_table(table, target, **options), pyarrow.table(columns)
    )  # fmt: skip


_PARQUETS = {
    "parquet, footer": lambda: _parquet(),
    "parquet, pages": lambda: _parquet(data_page_version="2.0", compression="zstd", row_group_size=2),
    "parquet, plain": lambda: _parquet(use_dictionary=False, compression="none", write_statistics=False),
}


def _csr(dense: Any) -> Any:
    from scipy.sparse import csr_array

    return csr_array(dense)


# Models


_FEW: dict[str, Any] = {"n_estimators": 3, "num_leaves": 5, "min_child_samples": 3, "progress": False}
_SMALL: dict[str, Any] = {"hidden_sizes": (4,), "epochs": 1, "progress": False, "random_state": 0}


def _of_lists(model: Any, features: Any = X) -> Any:
    return model.fit(features, Y, group=GROUP)


MODELS: dict[str, Callable[[], Any]] = {
    "boosted": lambda: _of_lists(BoostedRanker(**_FEW)),
    "boosted, categories": lambda: _of_lists(
        BoostedRanker(**_FEW, categorical_features=[0], lightgbm_params={"min_data_per_group": 1, "cat_smooth": 0.1}),
        np.round(X * 2) + 9,
    ),
    "boosted, classes": lambda: _of_lists(BoostedRanker("mcrank", **_FEW)),
    "boosted, linear": lambda: _of_lists(BoostedRanker("regression", **_FEW, lightgbm_params={"linear_tree": True})),
    "neural": lambda: _of_lists(
        NeuralRanker(**_SMALL, ensemble=2, scaling="quantile", missing="indicator"), np.where(X > 1, np.nan, X)
    ),
    "neural, attention": lambda: _of_lists(NeuralRanker(**_SMALL, attention_layers=1)),
    "extreme": lambda: ExtremeClassifier(**_SMALL).fit(X, LABELS),
    "linear": lambda: _of_lists(LinearRanker()),
    "coordinate_ascent": lambda: _of_lists(CoordinateAscentRanker(random_state=0)),
    "aggregator": lambda: RankAggregator().fit([["a", "b", "c"], ["b", {"a", "c"}], ["c", "a"]]),
}
"""A small model of every kind, and variants with other files."""


def use(model: Any) -> Any:
    if isinstance(model, RankAggregator):
        return model.predict_log_proba([["a", "b"], [{"a", "c"}, "b"]])
    if isinstance(model, BoostedRanker) and model.gains_ is None and not model.lightgbm_params:
        model.predict(X, contributions=True)
    if isinstance(model, NeuralRanker):
        return model.predict(X, group=[len(X)])
    return model.predict(X)


class ModelTarget:
    """A model folder with one altered file."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._folder = folder
        model.save(folder / "seed")
        self._files = {path.name: path.read_bytes() for path in (folder / "seed").iterdir()}

    def alter(self, rng: random.Random) -> dict[str, bytes]:
        files = dict(self._files)
        name = rng.choice(sorted(files))
        files[name] = (mutate_json if name.endswith(".json") else mutate)(files[name], rng)
        if name.endswith(".safetensors") and rng.random() < 0.8:
            files[name] = mutate_tensors(self._files[name], rng, self._folder / "tensors")
        if name != "plackett.json":
            description = json.loads(files["plackett.json"])
            if "sha256" in description["state"]:
                description["state"]["sha256"] = hashlib.sha256(files[name]).hexdigest()
            files["plackett.json"] = json.dumps(description).encode()
        return files

    def run(self, files: dict[str, bytes]) -> None:
        folder = self._folder / "altered"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        model = load_model(folder)
        try:
            found = use(model)
        except ValueError:
            return  # a clear error of predict
        model.save(self._folder / "again")
        if not np.array_equal(found, use(load_model(self._folder / "again")), equal_nan=True):
            raise SilentlyWrong("other scores after saving and loading")


def mutate_tensors(content: bytes, rng: random.Random, path: Path) -> bytes:
    """Tensors of a safetensors file with other shapes, types, names or values, and a matching checksum."""
    path.write_bytes(content)
    stored, about = read_tensors(path)
    tensors = {name: tensor.clone() for name, tensor in stored.items()}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(tensors))
        tensor = tensors[name]
        match rng.choice(("shape", "type", "drop", "rename", "value", "about")):
            case "shape":
                tensors[name] = torch.zeros(
                    rng.choice([(), (0,), (1,), (2, 3), (1, 1, 1), (70000,)]), dtype=tensor.dtype
                )
            case "type":
                tensors[name] = tensor.to(
                    rng.choice([torch.int64, torch.float16, torch.uint8, torch.bool, torch.float64])
                )
            case "drop" if len(tensors) > 1:
                del tensors[name]
            case "rename":
                tensors[rng.choice(("", "0", "0.", "scaling.", "network.x", "9999999999.step"))] = tensors.pop(name)
            case "value" if tensor.numel():
                tensor.view(-1)[rng.randrange(tensor.numel())] = (
                    rng.choice([0, -1, 10**9, float("inf"), float("nan")])
                    if (tensor.is_floating_point())
                    else rng.choice([-1, 0, 100])
                )
            case _:
                about = json.loads(mutate_json(json.dumps(about).encode(), rng, whole=True))
    write_tensors(path, tensors, about)
    return path.read_bytes()


# Checkpoints


class BoostedCheckpoint:
    """Resuming the training of trees from an altered checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "boosted.npz"
        self._fit(2)
        with np.load(self._path, allow_pickle=False) as arrays:
            self._arrays = dict(arrays)

    def _fit(self, rounds: int) -> Any:
        model = BoostedRanker(n_estimators=rounds, num_leaves=4, min_child_samples=3, progress=False)
        return model.fit(
            X, Y, group=GROUP, eval_set=(X, Y, np.repeat([0, 1], 20)), checkpoint=self._path, checkpoint_every=1
        )

    def alter(self, rng: random.Random) -> bytes:
        arrays = dict(self._arrays)
        name = rng.choice(sorted(arrays))
        if name == "header":
            arrays[name] = np.array(mutate_json(str(arrays[name]).encode(), rng).decode("utf-8", "replace"))
        elif name == "model":
            arrays[name] = np.frombuffer(mutate(arrays[name].tobytes(), rng), np.uint8)
        else:
            arrays[name] = rng.choice([arrays[name][:5], arrays[name] * np.nan, np.zeros((2, 3)), np.arange(40)])
        target = io.BytesIO()
        np.savez(target, **arrays)
        return target.getvalue() if rng.random() < 0.8 else mutate(target.getvalue(), rng)

    def run(self, content: bytes) -> None:
        self._path.write_bytes(content)
        self._fit(3).predict(X)


class NeuralCheckpoint:
    """Resuming the training of a network from an altered checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "neural"
        self._fit()
        (self._path,) = self._folder.glob("*.safetensors")
        self._content = self._path.read_bytes()

    def _fit(self) -> Any:
        model = NeuralRanker(hidden_sizes=(3,), epochs=2, progress=False, random_state=0, batch_size=20)
        return model.fit(X, Y, group=GROUP, checkpoint=self._folder, checkpoint_every=0)

    def alter(self, rng: random.Random) -> bytes:
        return (
            mutate_tensors(self._content, rng, self._folder.with_name("tensors"))
            if rng.random() < 0.8
            else mutate(self._content, rng)
        )

    def run(self, content: bytes) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        self._path.write_bytes(content)
        try:
            self._fit().predict(X)
        except DataError:
            raise
        except ValueError:
            return  # such as a NaN loss from NaN weights


# Caches


def _add_seven(x: Any) -> Any:
    return x + 7


class _CacheFile:
    """A small file, truncated at every byte and with a flipped bit in every byte, in random order."""

    exhaustive = True  # whatever time it takes
    _path: Path
    _content: bytes
    _altered: Iterator[bytes]

    def _take(self, path: Path) -> None:
        self._path, self._content = path, path.read_bytes()
        self._altered = self._alterations()

    def _alterations(self) -> Iterator[bytes]:
        content = self._content
        yield content  # unaltered: must be loaded
        rng = random.Random(0)  # noqa: S311 - repeatable
        places = [(place, flip) for place in range(len(content)) for flip in (True, False)]
        rng.shuffle(places)
        for place, flip in places:
            flipped = bytes([content[place] ^ 1 << rng.randint(0, 7)]) + content[place + 1 :]
            yield content[:place] + (flipped if flip else b"")

    def alter(self, _: random.Random) -> bytes | None:
        return next(self._altered, None)

    def _write(self, content: bytes) -> None:
        self._path.unlink()  # faster than to truncate it
        self._path.write_bytes(content)


class KernelFile(_CacheFile):
    """The file of a compiled kernel.

    An altered file counts as missing, so that the kernel is compiled. It must never reach pickle or the linker.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._kernel = folder, kernel(_add_seven)
        with patch.dict(os.environ, PLACKETT_CACHE_DIR=str(folder)):
            self._kernel(1)
        (path,) = (folder / "kernels").iterdir()
        self._take(path)

    def run(self, content: bytes) -> None:
        self._write(content)
        (signature,) = self._kernel.signatures
        with patch.dict(os.environ, PLACKETT_CACHE_DIR=str(self._folder)):
            found = self._kernel._cache.load_overload(signature, self._kernel.targetctx)
        if (found is None) == (content == self._content):
            raise SilentlyWrong("altered code was loaded, or code as it was written was not")
        if found is None:
            raise DataError("not loaded", file=str(self._path))


class ParsedFile(_CacheFile):
    """The file of parsed data. An altered file counts as missing, unless it holds the same arrays."""

    def __init__(self, folder: Path) -> None:
        source = folder / "lists.txt"
        source.write_bytes(_LETOR)
        data.load_letor(source, cache=folder / "parsed")
        (path,) = (folder / "parsed").iterdir()
        self._take(path)
        self._wanted = sparse_text._read_arrays(path)

    def run(self, content: bytes) -> None:
        self._write(content)
        found = sparse_text._read_arrays(self._path)
        if found is None:
            raise DataError("not loaded", file=str(self._path))
        if list(found) != list(self._wanted) or not all(np.array_equal(found[n], self._wanted[n]) for n in found):
            raise SilentlyWrong("altered data were loaded")


# Outputs

_DEVICES = {"null": (1, 3), "full": (1, 7), "zero": (1, 5)}
_TO_FILES = {
    "scores.txt": lambda target: data.dump_scores(np.arange(5.0), target),
    "scores.txt.gz": lambda target: data.dump_scores(np.arange(5.0), target),
    "lists.txt": lambda target: data.dump_letor(_LISTS, target),
    "lists.parquet": lambda target: data.dump_parquet(_LISTS, target),
    "labels.txt": lambda target: data.dump_xmc(_PAIRED, target),
    "page.html": lambda target: write_page(Page("Title", [Section("Facts", [KeyValues({"a": 1})])]), target),
    "picture.png": lambda target: save_figure(Figure(figsize=(1, 1)), target),
    "picture.svg": lambda target: save_figure(Figure(figsize=(1, 1)), target),
    "state": lambda target: write_tensors(target, {"a": torch.arange(5.0)}, {"step": 1}),
}
_PLACES = (
    "nothing", "file", "link", "chain", "dangling", "lost", "circle", "pipe", "terminal", "folder", "below a file",
    *_DEVICES,
)  # fmt: skip


class OutputTarget:
    """Output to files, links, pipes, devices, terminals and folders, with any mode and umask."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._model = folder, RankAggregator().fit([["a", "b", "c"], ["b", {"a", "c"}], ["c", "a"]])
        self._number = 0
        self._can_make_devices = True
        self._wanted = {}
        for name, write in _TO_FILES.items():
            write(folder / name)
            self._wanted[name] = (folder / name).read_bytes()

    def alter(self, rng: random.Random) -> tuple[str, str, int, int]:
        name = rng.choice([*_TO_FILES, "model"])
        return name, rng.choice(_PLACES), rng.choice([0o600, 0o640, 0o644, 0o666]), rng.choice([0o022, 0o077, 0o002])

    def run(self, case: tuple[str, str, int, int]) -> None:
        name, place, mode, umask = case
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        before, old = os.umask(umask), set(Path(tempfile.gettempdir()).glob(".output.*"))
        try:
            self._write(folder, name, place, mode, umask)
        finally:
            os.umask(before)
        if list(folder.rglob("*.part")) or set(Path(tempfile.gettempdir()).glob(".output.*")) - old:
            raise SilentlyWrong("something is left behind")

    def _write(self, folder: Path, name: str, place: str, mode: int, umask: int) -> None:
        target, real, reader = self._make(folder, name, place, mode)
        try:
            states = {path: path.lstat() for path in (target, *folder.iterdir()) if path.is_symlink() or path.exists()}
            try:
                self._model.save(target) if name == "model" else _TO_FILES[name](target)
            except OSError as error:
                if place in ("nothing", "file", "link", "chain", "dangling", "null", "zero") and name != "model":
                    raise
                self._check_same(states)
                raise DataError(str(error), file=str(target)) from error
            for path, state in states.items():
                if stat.S_IFMT(path.lstat().st_mode) != stat.S_IFMT(state.st_mode):
                    raise SilentlyWrong(f"{place} became something else")
        finally:
            found = None if reader is None else reader()
        if name == "model":
            if not np.array_equal(use(load_model(target)), use(self._model)):
                raise SilentlyWrong("another model")
        elif reader is not None or real is not None:
            content = found if real is None else real.read_bytes()
            wanted_name = "scores.txt" if place == "terminal" and name == "scores.txt.gz" else name  # chosen by suffix
            if content != self._wanted[wanted_name] and name != "picture.svg":  # contains a date
                raise SilentlyWrong(f"{len(content or b'')} bytes in place of {len(self._wanted[name])}")
            wanted = 0o666 & ~umask if place in ("nothing", "dangling") else mode
            if real is not None and stat.S_IMODE(real.stat().st_mode) != wanted:
                raise SilentlyWrong(f"mode {real.stat().st_mode:o} in place of {wanted:o}")

    def _check_same(self, states: dict[Path, os.stat_result]) -> None:
        for path, state in states.items():
            now = path.lstat()
            if (now.st_ino, now.st_mode, now.st_size) != (state.st_ino, state.st_mode, state.st_size):
                raise SilentlyWrong(f"{path.name} was changed by a write that failed")

    def _make(self, folder: Path, name: str, place: str, mode: int) -> tuple[Path, Path | None, Any]:
        """The target, the resulting file if it is one, and otherwise a reader for it."""
        target, real = folder / name, folder / f"real-{name}"
        if place in ("file", "link", "chain", "below a file"):
            one = target if place in ("file", "below a file") else real
            one.write_bytes(b"what was there before " * 100)
            one.chmod(mode)
        if place == "below a file":
            return target / "x", None, None
        if place in ("link", "dangling", "chain"):
            middle = folder / "middle"
            middle.symlink_to(real.name)
            target.symlink_to(middle.name if place == "chain" else real.name)
            return target, real, None
        if place in ("circle", "lost"):
            target.symlink_to("circle" if place == "circle" else "nowhere/x")
            (folder / "circle").symlink_to(target.name)
        elif place == "folder":
            target.mkdir()
            (target / "precious").write_text("x")
        elif place == "pipe":
            os.mkfifo(target)
            return target, None, _Reader(os.open(target, os.O_RDONLY | os.O_NONBLOCK))
        elif place == "terminal":
            master, slave = pty.openpty()
            tty.setraw(slave)
            return Path(os.ttyname(slave)), None, _Reader(master, slave)
        elif place in _DEVICES and self._can_make_devices:
            try:
                os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(*_DEVICES[place]))
            except PermissionError:  # only root can
                self._can_make_devices = False
        return target, target if place in ("nothing", "file") else None, None


class _Reader:
    """Reads a pipe or terminal in a thread during writing. Calling it returns all data and closes it."""

    def __init__(self, handle: int, *others: int) -> None:
        self._handle, self._others, self._found, self._done = handle, others, b"", threading.Event()
        os.set_blocking(handle, False)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            is_last = self._done.is_set()
            ready, _, _ = select.select([self._handle], [], [], 0.0 if is_last else 0.01)
            try:
                part = os.read(self._handle, 1 << 16) if ready else b""
            except OSError:  # no writer
                part = b""
            self._found += part
            if is_last and not part:
                return

    def __call__(self) -> bytes:
        if self._thread.is_alive():
            self._done.set()
            self._thread.join()
            for handle in (self._handle, *self._others):
                os.close(handle)
        return self._found


# Invalid sparse arrays, which our readers never create

_RANKERS = {
    "boosted": lambda: BoostedRanker(**_FEW),
    "linear": LinearRanker,
    "coordinate_ascent": lambda: CoordinateAscentRanker(random_state=0, max_sweeps=1),
    "neural": lambda: NeuralRanker(**_SMALL),
}


def _sparse_calls() -> dict[str, Callable[[Any], Any]]:
    """Functions that take a CSR array of features (40 x 3) or labels (40 x 6)."""
    from plackett import metrics

    scores = np.random.default_rng(0).normal(size=LABELS.shape)
    calls: dict[str, Callable[[Any], Any]] = {
        "features, extreme": lambda X_: ExtremeClassifier(**_SMALL).fit(X_, LABELS),
        "features, extreme, predict": ExtremeClassifier(**_SMALL).fit(_csr(X), LABELS).predict_top,
        "labels, extreme": lambda Y_: ExtremeClassifier(**_SMALL).fit(_csr(X), Y_),
        "labels, precision": lambda Y_: metrics.multilabel_precision(scores, Y_, k=3),
        "labels, ndcg": lambda Y_: metrics.multilabel_ndcg(scores, Y_, k=3),
        "labels, propensity": metrics.inverse_propensity,
        "labels, coverage": lambda Y_: metrics.coverage(scores, Y_, k=3),
        "labels, scores": lambda S_: metrics.multilabel_precision(S_, LABELS.astype(float), k=1),
    }
    for name, make in _RANKERS.items():
        calls[f"features, {name}"] = lambda X_, make=make: make().fit(X_, Y, group=GROUP)  # type: ignore[misc]
        calls[f"features, {name}, predict"] = make().fit(_csr(X), Y, group=GROUP).predict
    return calls


def _serve(link: Any) -> None:
    """Run the requested calls in a separate process and send back the outcomes."""
    warnings.simplefilter("ignore")
    calls = _sparse_calls()
    link.send(list(calls))
    while True:
        name, arrays, shape = link.recv()
        matrix = _csr(np.zeros(shape))
        matrix.data, matrix.indices, matrix.indptr = arrays
        try:
            calls[name](matrix)
            link.send("accepted")
        except ValueError as error:
            link.send(f"refused: {error}")
        except Exception as error:
            link.send(f"{type(error).__name__}: {error}")


class SparseTarget:
    """CSR arrays with indices out of range or decreasing pointers, for every estimator and metric that takes them.

    They are used in another process, which they may crash: the crash is counted, and a new process continues.
    """

    def __init__(self, _: Path) -> None:
        self._process: Any = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._link, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._names = self._link.recv()

    def alter(self, rng: random.Random) -> tuple[str, Any, Any]:
        if self._process is None:  # here, where the time does not count
            self._start()
        name = rng.choice(self._names)
        good = _csr(LABELS.astype(np.float64) if name.startswith("labels") else np.where(X > 0, X, 0.0))
        arrays = [good.data.copy(), good.indices.copy(), good.indptr.copy()]
        for _ in range(rng.randint(1, 2)):
            which = rng.choice((1, 2, 2))
            at = rng.randrange(len(arrays[which]))
            arrays[which][at] = rng.choice([-1, -5, 10**6, 2**31 - 1, -(2**31), int(arrays[which][at]), 3, 0])
            if rng.random() < 0.1:
                arrays[which] = arrays[which][: rng.randrange(1, len(arrays[which]))]
        return name, arrays, good.shape

    def run(self, case: tuple[str, Any, Any]) -> None:
        self._link.send(case)
        try:
            answer = self._link.recv() if self._link.poll(0.75 * LONGEST) else None
        except EOFError:
            self._process.join()
            code, self._process = self._process.exitcode, None
            raise Counted("crashes", f"{case[0]} ended the process with {code}") from None
        if answer is None:
            self._process.kill()
            self._process = None
            raise Counted("hangs", case[0])
        if answer == "accepted":
            if not _is_sound(*case[1:]):
                raise Counted("silent wrong reads", f"{case[0]} took what is no matrix")
        elif answer.startswith("refused: "):
            raise DataError(answer, file=case[0])
        else:
            raise Counted("crashes", f"{case[0]}: {answer}")


def _is_sound(arrays: Any, shape: Any) -> bool:
    values, indices, indptr = arrays
    return (
        len(indptr) == shape[0] + 1
        and indptr[0] == 0
        and bool((np.diff(indptr) >= 0).all())
        and indptr[-1] <= min(len(indices), len(values))
        and bool(((indices[: indptr[-1]] >= 0) & (indices[: indptr[-1]] < shape[1])).all())
    )


# Running


class ReaderTarget:
    def __init__(self, seed: bytes, run: Callable[[bytes], None], mutator: Mutator = mutate) -> None:
        self._seed, self.run, self._mutator = seed, run, mutator

    def alter(self, rng: random.Random) -> bytes:
        return self._mutator(self._seed, rng)


TARGETS: dict[str, Callable[[Path], Any]] = {
    **{name: lambda _, pair=pair: ReaderTarget(*pair) for name, pair in READERS.items()},
    **{
        name: lambda _, make=make: ReaderTarget(make(), READERS["parquet"][1], mutate_binary)
        for name, make in _PARQUETS.items()
    },
    **{f"model: {name}": lambda folder, make=make: ModelTarget(make(), folder) for name, make in MODELS.items()},
    "checkpoint: boosted": BoostedCheckpoint,
    "checkpoint: neural": NeuralCheckpoint,
    "compiled code": KernelFile,
    "parsed data": ParsedFile,
    "outputs": OutputTarget,
    "sparse arrays": SparseTarget,
}  # fmt: skip


_COUNTED = ("inputs", "clean errors", "accepted")


class Counts(Counter[str]):
    """Counts in a file that another process can read, so that they survive a crash."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self._shared = None if path is None else np.memmap(path, np.int64, "r+", shape=(len(_COUNTED),))

    def count(self, name: str) -> None:
        self[name] += 1
        if self._shared is not None:
            self._shared[_COUNTED.index(name)] += 1


def fuzz(
    target: Any, inputs: int, seconds: float, seed: int, longest: float = LONGEST, shared: Path | None = None
) -> Counter[str]:
    """Count inputs, clean errors and accepted inputs. Anything else is raised; a timeout ends the process."""
    counts = Counts(shared)
    end = math.inf if getattr(target, "exhaustive", False) else time.monotonic() + seconds
    while counts["inputs"] < inputs and time.monotonic() < end:
        number = seed + counts["inputs"]
        altered = target.alter(random.Random(number))  # noqa: S311 - repeatable
        if altered is None:  # all alterations are done
            break
        faulthandler.dump_traceback_later(longest, exit=True)
        try:
            target.run(altered)
            counts.count("accepted")
        except DataError:
            counts.count("clean errors")
        except Counted as finding:
            counts[finding.kind] += 1
            print(f"input {number}: {finding.kind}: {finding}", file=sys.stderr)
        except Exception as error:
            raise AssertionError(f"input {number}: {type(error).__name__}: {error}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()
        counts.count("inputs")
    return counts


def _run_here(name: str, inputs: int, seconds: float, seed: int, longest: float, shared: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = TARGETS[name](Path(folder))
        if shared is None:
            fuzz(target, 5, math.inf, seed, UNHURRIED)  # compile and import first
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = fuzz(target, inputs, seconds, seed, longest, shared)
    return {**counts, "MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}


def run_apart(
    names: list[str], inputs: int, seconds: float, seed: int, longest: float = LONGEST
) -> dict[str, dict[str, Any]]:
    """Run targets in a separate process and return the counts of each; if it dies, that is a crash or a hang."""
    command = [sys.executable, __file__, "--here", "--inputs", str(inputs), "--seconds", str(seconds)]
    command += ["--seed", str(seed), "--longest", str(longest), "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    return {", ".join(names): {_kind_of_end(done.stderr): 1, "how": done.stderr[-1500:]}}


def run_past_crashes(name: str, inputs: int, seconds: float, seed: int) -> dict[str, Any]:
    """Run one target in separate processes; after each crash, another process continues with the next input."""
    total: Counter[str] = Counter()
    ends: list[str] = []
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder) / "counts"
        while total["inputs"] < inputs and (left := until - time.monotonic()) > 0 and len(ends) < _MOST_CRASHES:
            shared.write_bytes(bytes(8 * len(_COUNTED)))
            command = [sys.executable, __file__, "--here", "--only", name, "--shared", str(shared)]
            command += ["--inputs", str(inputs - total["inputs"]), "--seconds", str(left)]
            command += ["--seed", str(seed + total["inputs"])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            found = dict(zip(_COUNTED, np.fromfile(shared, np.int64).tolist(), strict=True))
            total.update(found)
            if done.returncode:
                total.update({_kind_of_end(done.stderr): 1, "inputs": 1})
                ends.append(f"input {seed + total['inputs'] - 1}: {done.stderr[-500:]}")
            else:
                total["MB"] = max(total["MB"], json.loads(done.stdout.splitlines()[-1])[name]["MB"])
                break
    return {**total, **({"how": "\n".join(ends)} if ends else {})}


def _kind_of_end(errors: str) -> str:
    kinds = {"Timeout (": "hangs", "SilentlyWrong": "silent wrong reads"}
    return next((kind for sign, kind in kinds.items() if sign in errors), "crashes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=[*TARGETS], default=list(TARGETS))
    parser.add_argument("--inputs", type=int, default=10**9)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets, without their preparation")
    parser.add_argument("--seconds", type=float, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds for one input")
    parser.add_argument("--here", action="store_true", help="in this process; prints JSON")
    parser.add_argument("--shared", type=Path, help="with --here: a file for the counts")
    arguments = parser.parse_args()
    chosen, inputs, seed = arguments.only, arguments.inputs, arguments.seed
    seconds = arguments.seconds or 60 * arguments.minutes / len(chosen)
    if arguments.here:
        longest, shared = arguments.longest, arguments.shared
        print(json.dumps({name: _run_here(name, inputs, seconds, seed, longest, shared) for name in chosen}))
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from measure import report, save
    from rich.console import Console

    columns = ["inputs", "clean errors", "accepted", "crashes", "hangs", "silent wrong reads", "MB"]
    results: dict[str, dict[str, Any]] = {}
    for name in chosen:
        results[name] = run_past_crashes(name, inputs, seconds, seed)
    total = {c: (max if c == "MB" else sum)(found.get(c, 0) for found in results.values()) for c in columns}
    rows = [[name, *(f"{found.get(c, 0):,}" for c in columns)] for name, found in {**results, "all": total}.items()]
    console = Console(width=120)
    report("Altered files", ["", *columns], rows, console)
    for name, found in results.items():
        if "how" in found:
            console.print(name, found["how"], markup=False)
    if len(chosen) == len(TARGETS):
        save({"limit in seconds": LONGEST, "targets": results, "all": total}, "fuzz", console)
    sys.exit(any(total[kind] for kind in ("crashes", "hangs", "silent wrong reads")))


if __name__ == "__main__":
    main()
