"""Coverage-guided fuzzing of readers with arbitrary bytes: only DataError may be raised.

    python tests/fuzz_readers.py -max_total_time=60

Needs atheris. `tests/robustness/test_fuzz.py` runs it for a short while.
"""

import contextlib
import io
import sys

import atheris

# Instrumented functions cannot be compiled.
COMPILED = ["plackett.data.parsing_kernels", "plackett.data.generators.tagged_row_kernels"]

with atheris.instrument_imports(include=["plackett.data"], exclude=COMPILED):
    from plackett.data import load, load_letor, load_preflib, load_rankings_csv, load_xmc
    from plackett.errors import DataError

READERS = (
    load_letor,
    lambda stream: load_letor(stream, sparse=True, unsorted="sort", scattered="group", first_index=0),
    load_xmc,
    lambda stream: load_xmc(stream, unsorted="sort"),
    load_preflib,
    load_rankings_csv,
    lambda stream: load_rankings_csv(stream, layout="places"),
    load,
)


def read(data: bytes) -> None:
    if not data:
        return
    with contextlib.suppress(DataError):
        READERS[data[0] % len(READERS)](io.BytesIO(data[1:]))


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
