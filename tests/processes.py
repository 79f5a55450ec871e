"""Running code in separate processes."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any


def run_alone(code: str, *arguments: Any) -> Any:
    """Run code in a new process and parse its last line of output as JSON; warnings are errors there too."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]  # the code under test
    environment = {
        # Some machines do not allow the bfloat16 instructions of their processor.
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    done = subprocess.run(  # noqa: S603 (our own code)
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
