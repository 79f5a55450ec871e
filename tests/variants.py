"""Run the test suite with other code paths, threads and orders, one after another, and print a table.

    python tests/variants.py                          all of them
    python tests/variants.py oldest reversed          some of them
    python tests/variants.py oldest+reversed          two of them at once
    python tests/variants.py -- tests/estimators/test_linear.py  some tests under all of them
    python tests/variants.py --list

Libraries choose code for the processor: OpenBLAS (NumPy, SciPy), MKL and oneDNN (torch), ATen, NumPy's own loops and
numba each have an environment variable that selects the code of another processor, which rounds differently. Tests that
depend on rounding, thread timing or earlier tests fail in some variants. Logs are written to --logs. The status of a
run is that of pytest, or minus the signal that ended it; the overall status is the worst one.

This module is also the pytest plugin that sets the order: `-p variants --order reversed`, or `--order 7` to shuffle the
files, and the tests within each, with that seed. Tests of a file stay together, since they share expensive fixtures.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")


# Plugin


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--order", default="given", help="given, reversed, or the seed of a shuffle")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    order = config.getoption("--order")
    if order == "reversed":
        items.reverse()
    elif order != "given":
        shuffle = random.Random(int(order))  # noqa: S311 (no secret)
        files = sorted({item.path for item in items})
        shuffle.shuffle(files)
        drawn = {item: shuffle.random() for item in items}
        items.sort(key=lambda item: (files.index(item.path), drawn[item]))


# Runs


def _numpy_features() -> str:
    """Features of this processor for which NumPy has loops beyond its baseline."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name])


def _has_avx512() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "avx512vl" in cpuinfo.read_text()


def variants() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Environment and options of pytest by name."""
    one, two = ({"OMP_NUM_THREADS": n, "PLACKETT_NUM_THREADS": n} for n in "12")
    oldest = {
        "OPENBLAS_CORETYPE": "Prescott", "MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41", "NUMBA_CPU_NAME": "generic", "NPY_DISABLE_CPU_FEATURES": _numpy_features(),
    }  # fmt: skip
    sse4 = {
        "OPENBLAS_CORETYPE": "Nehalem", "MKL_CBWR": "SSE4_2", "ATEN_CPU_CAPABILITY": "default",
        "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": "+sse4.2,+sse4.1,+ssse3,+sse3,+popcnt,+cx16",
    }  # fmt: skip
    avx2 = {
        "OPENBLAS_CORETYPE": "Haswell", "MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "NUMBA_CPU_NAME": "haswell",
    }  # fmt: skip
    avx512 = {"OPENBLAS_CORETYPE": "SkylakeX", "MKL_CBWR": "AVX512", "ATEN_CPU_CAPABILITY": "avx512"}
    return {
        "default": (one, []),
        "oldest": (one | oldest, []),
        "sse4": (one | sse4, []),
        "avx2": (one | avx2, []),
        **({"avx512": (one | avx512, [])} if _has_avx512() else {}),
        "two threads": (two, []),
        "reversed": (one, ["--order", "reversed"]),
        "random 1": (one, ["--order", "1"]),
        "random 2": (one, ["--order", "2"]),
    }


def combine(names: str) -> tuple[dict[str, str], list[str]]:
    """Environment and options of variants joined by +; a later one overrides an earlier one."""
    known = variants()
    if unknown := set(names.split("+")) - set(known):
        raise ValueError(f"variant must be one of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    environment: dict[str, str] = {}
    options: list[str] = []
    for name in names.split("+"):
        environment |= known[name][0]
        options += known[name][1]
    return environment, options


def run(name: str, environment: dict[str, str], options: list[str], logs: Path) -> dict[str, Any]:
    """Counts by outcome, seconds and the status of pytest."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    given = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    if "NUMBA_CPU_NAME" in environment:  # keep kernels for other processors separate
        given["PLACKETT_CACHE_DIR"] = str(logs / f"kernels {environment['NUMBA_CPU_NAME']}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "variants", *options]
    start = time.monotonic()
    with (logs / f"{name}.log").open("w") as log:
        log.write(f"{' '.join(f'{key}={value!r}' for key, value in environment.items())} {' '.join(command)}\n")
        log.flush()
        status = subprocess.run(  # noqa: S603 (our own code)
            command, cwd=ROOT, env={**os.environ, **given}, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode
    minutes = (time.monotonic() - start) / 60
    last = (logs / f"{name}.log").read_text().rstrip().rpartition("\n")[2]
    counts = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (\w+?)s?\b", last)}
    return {**{one: counts.get(one, 0) for one in OUTCOMES}, "status": status, "minutes": minutes}


def main() -> int:
    known = variants()
    own = sys.argv[1:]
    cut = own.index("--") if "--" in own else len(own)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="variant", help=", ".join(known))
    parser.add_argument("--logs", type=Path, help="the folder of the logs; a temporary one if not given")
    parser.add_argument("--list", action="store_true", help="print what each of them sets")
    asked = parser.parse_args(own[:cut])
    try:
        chosen = {name: combine(name) for name in asked.names or known}
    except ValueError as error:
        parser.error(str(error))
    if asked.list:
        for name, (environment, options) in known.items():
            print(f"{name:12}", *(f"{key}={value!r}" for key, value in environment.items()), *options)
        return 0
    logs = asked.logs or Path(tempfile.mkdtemp(prefix="variants-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(f"logs in {logs}")
    print(f"{'variant':20}", *(f"{one:>8}" for one in (*OUTCOMES, "status", "minutes")), flush=True)
    worst = 0
    for name, (environment, options) in chosen.items():
        found = run(name, environment, [*options, *own[cut + 1 :]], logs)
        worst = max(worst, abs(found["status"]))
        minutes = found.pop("minutes")
        print(f"{name:20}", *(f"{value:8}" for value in found.values()), f"{minutes:8.1f}", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
