"""Code in processes of its own."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from typing import Any


def _start(code: str, arguments: tuple[Any, ...], **environment: str) -> "subprocess.Popen[str]":
    # Some processors have instructions for bfloat16 that their machine does not let them use.
    return subprocess.Popen(  # noqa: S603 (our own code)
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **environment},
    )


def _result(process: "subprocess.Popen[str]") -> Any:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def run_alone(code: str, *arguments: Any) -> Any:
    """What a fresh process prints last, as JSON; warnings are errors there too."""
    return _result(_start(code, arguments))


def run_together(count: int, code: str, *arguments: Any) -> list[Any]:
    """The same of several processes, launched as torchrun launches them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    processes = [_start(code, arguments, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(count)]
    return [_result(process) for process in processes]
