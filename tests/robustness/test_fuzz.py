"""Altered files give a valid result or a clean error, nothing else. `make fuzz` runs longer."""

import bz2
import gzip
import io
import lzma
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fuzz
import pytest

from plackett.data import load_letor, load_scores, load_xmc
from plackett.errors import DataError

# LightGBM reads the trees and can end the process: tests/boosted/test_model_text.py runs them in a separate one.
IN_THIS_PROCESS = [name for name in fuzz.TARGETS if "boosted" not in name]


@pytest.mark.filterwarnings("ignore")  # fits of very little data, weights that are not numbers
@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_altered_files_give_results_or_clean_errors(name: str, tmp_path: Path) -> None:
    inputs = 40 if ":" in name else 250
    counts = fuzz.fuzz(fuzz.TARGETS[name](tmp_path), inputs, math.inf, seed=1000, longest=fuzz.UNHURRIED)
    assert counts["clean errors"] + counts["accepted"] == inputs
    assert counts["clean errors"] > 10
    assert counts["accepted"] > 0


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_altered_compressed_files_give_results_or_clean_errors(compress: Callable[[bytes], bytes]) -> None:
    seed = compress(fuzz.READERS["letor"][0] * 20)
    refused = 0
    for number in range(300):
        content = fuzz.mutate(seed, random.Random(number))  # noqa: S311 - repeatable
        try:
            load_letor(io.BytesIO(content), scattered="group")
        except DataError as error:
            refused += 1
            assert str(error).startswith("stream")  # noqa: PT017 - most must fail, but not all
    assert refused > 200


def test_harness_finds_silent_wrong_reads() -> None:
    """The harness must notice a reader that drops the end of a file, and one that fails."""

    def read(content: bytes) -> bytes:
        return content[: len(content) // 2]

    def write(found: bytes, target: io.BytesIO) -> None:
        target.write(found)

    with pytest.raises(fuzz.SilentlyWrong):
        fuzz.round_trip(lambda stream: read(stream.read()), write)(b"abcdefgh")
    with pytest.raises(AssertionError, match="input 3: ZeroDivisionError"):
        fuzz.fuzz(fuzz.ReaderTarget(b"a", lambda _: 1 // 0), inputs=1, seconds=math.inf, seed=3)  # type: ignore[arg-type]


def test_crashes_of_a_process_are_counted() -> None:
    def run(_: bytes) -> None:
        raise fuzz.Counted("crashes", "it ended the process")

    counts = fuzz.fuzz(fuzz.ReaderTarget(b"a", run), inputs=2, seconds=5.0, seed=3)
    assert counts == {"inputs": 2, "crashes": 2}


def test_crashes_are_counted_and_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If some inputs end the process, new processes handle the remaining inputs."""
    script = tmp_path / "fuzz_apart.py"
    script.write_text(
        f"import os, sys\nsys.path.insert(0, {str(Path(fuzz.__file__).parent)!r})\nimport fuzz\n"
        "run = lambda content: os.abort() if content[0] else None\n"
        "target = fuzz.ReaderTarget(bytes(40), run, fuzz.mutate_binary)\n"
        "fuzz.TARGETS['fragile'] = lambda folder: target\n"
        "fuzz.main()\n"
    )
    monkeypatch.setattr(fuzz, "__file__", str(script))
    fragile = [_alters_first_byte(n) for n in range(2000)]
    seed = next(n for n in range(1990) if fragile[n : n + 4] == [False, True, False, False])
    found = fuzz.run_past_crashes("fragile", 4, 300.0, seed)
    assert (found["inputs"], found["crashes"], found["accepted"]) == (4, 1, 3)
    assert found["how"].startswith(f"input {seed + 1}:")


def _alters_first_byte(number: int) -> bool:
    return fuzz.mutate_binary(bytes(40), random.Random(number))[0] != 0  # noqa: S311 - repeatable


def test_every_altered_byte_of_a_parquet_file(tmp_path: Path) -> None:
    """Runs in a separate process: Arrow used to end it when our size check asked about damaged columns."""
    script = tmp_path / "bytes.py"
    script.write_text(
        f"import io, sys\nsys.path.insert(0, {str(Path(fuzz.__file__).parent)!r})\nimport fuzz\n"
        "from plackett.data import load_parquet\nfrom plackett.errors import DataError\n"
        "refused = 0\n"
        "for make in fuzz._PARQUETS.values():\n"
        "    content = make()\n"
        "    for at in range(len(content) // 4, len(content)):\n"
        "        byte = (0, content[at] ^ 1, content[at] ^ 4)[at % 3]\n"
        "        try:\n"
        "            load_parquet(io.BytesIO(content[:at] + bytes([byte]) + content[at + 1 :]))\n"
        "        except DataError:\n"
        "            refused += 1\n"
        "print(refused)\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)  # noqa: S603
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout) > 400


def test_coverage_guided_fuzzing_runs(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    for number, (seed, _) in enumerate(fuzz.READERS.values()):
        for reader in range(8):
            (tmp_path / f"{number}-{reader}").write_bytes(bytes([reader]) + seed)
    script = Path(__file__).parents[1] / "fuzz_readers.py"
    # libFuzzer's limit on memory counts what the process that started it has used, so it depends on the tests before.
    options = ["-runs=3000", "-seed=7", "-max_len=400", "-rss_limit_mb=0"]
    command = [sys.executable, str(script), *options, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)  # noqa: S603
    assert run.returncode == 0, run.stderr[-3000:]


def test_earlier_findings_stay_fixed() -> None:
    with pytest.raises(DataError, match="stream, line 1: expected index:value"):
        load_letor(io.BytesIO(b"1e-310 qid:1 broken\n"))  # a label left to float(), followed by an error in its row
    assert load_letor(io.BytesIO(b"2 qid:1 1:0.5 # \n")).ids is None  # an empty comment is not an identifier
    with pytest.raises(DataError, match="stream, line 2: expected label:score with finite scores"):
        load_scores(io.BytesIO(b"0:1\n1:nan\n"), load_xmc(io.BytesIO(b"2 1 5\n0 0:1\n1 0:1\n")))
