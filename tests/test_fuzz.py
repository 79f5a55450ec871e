"""Mutated files: readers give a result or a DataError, never anything else."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plackett.data import dump_parquet, load_group, load_letor, load_parquet, load_preflib, load_rankings_csv, load_xmc
from plackett.data.containers import RankingData
from plackett.errors import DataError

_parquet = io.BytesIO()
dump_parquet(RankingData(np.ones((3, 2)), np.ones(3), np.array([1, 1, 2]), np.array([0, 2, 3])), _parquet)

SEEDS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    "letor": (b"2 qid:1 1:0.5 2:-3e-2 # docid = a\n0 qid:1 1:7\n1 qid:2 3:1.25\n", load_letor),
    "sparse": (
        b"2 qid:1 2:0.5 0:-3e-2\n0 qid:2 1:7\n1 qid:1 3:nan\n",
        lambda s: load_letor(s, sparse=True, unsorted="sort", scattered="group", first_index=0),
    ),
    "xmc": (b"3 4 5\n1,2 0:1 3:0.5\n 1:2\n4,0\n", load_xmc),
    "preflib": (b"# DATA TYPE: toi\n# NUMBER ALTERNATIVES: 3\n# ALTERNATIVE NAME 1: a\n2: 1,{2,3}\n", load_preflib),
    "ranks": (b"a,b,c\n1,2,2\n,1,\n", load_rankings_csv),
    "places": (b"place1,place2\nx,y=z\ny,\n", load_rankings_csv),
    "group": (b"3\n2\n10\n", load_group),
    "parquet": (_parquet.getvalue(), load_parquet),
}  # fmt: skip

mutation = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "cut", "repeat"]),
    st.integers(0, 10**6),
    st.one_of(
        st.binary(min_size=1, max_size=4),
        st.sampled_from([b"\n", b" ", b":", b",", b"#", b"\0", b"\r", b"{", b"}", b"-", b"e", b"nan", b"9" * 25, b'"']),
    ),
)


def mutate(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, where, new in changes:
        at = where % (len(data) + 1)
        if kind == "replace":
            data = data[:at] + new + data[at + len(new) :]
        elif kind == "insert":
            data = data[:at] + new + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + len(new) :]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + data[at // 2 : at] + data[at:]
    return data


@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=400)
@given(st.lists(mutation, min_size=1, max_size=4))
@example([("cut", 0, b"x")])
def test_mutated_files(name: str, changes: list[tuple[str, int, bytes]]) -> None:
    seed, read = SEEDS[name]
    data = mutate(seed, changes)
    try:
        read(io.BytesIO(data))
    except DataError as error:
        assert str(error).startswith("stream")  # noqa: PT017 - most mutations must fail, some must not


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@given(st.lists(mutation, min_size=1, max_size=2))
def test_mutated_compressed_files(compress: Callable[[bytes], bytes], changes: list[tuple[str, int, bytes]]) -> None:
    data = mutate(compress(SEEDS["letor"][0] * 20), changes)
    try:
        load_letor(io.BytesIO(data), scattered="group")
    except DataError as error:
        assert str(error).startswith("stream")  # noqa: PT017 - as above


def test_guided_by_coverage(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    for number, (seed, _) in enumerate(SEEDS.values()):
        for reader in range(8):
            (tmp_path / f"{number}-{reader}").write_bytes(bytes([reader]) + seed)
    script = Path(__file__).with_name("fuzz_readers.py")
    command = [sys.executable, str(script), "-runs=15000", "-seed=7", "-max_len=400", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)  # noqa: S603
    assert run.returncode == 0, run.stderr[-3000:]
