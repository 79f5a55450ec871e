"""plackett compile"""

import time
from typing import Annotated

import typer

from plackett.cli.app import app, console


@app.command("compile")
def compile_ahead(
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one per processor.")] = None,
) -> None:
    """Compile all kernels ahead of time, for container images and continuous integration."""
    from plackett.ahead_of_time import compile_kernels

    start = time.perf_counter()
    folder = compile_kernels(jobs=jobs)
    files = sum(1 for _ in folder.iterdir())
    console.print(f"{files} compiled kernels in {folder}, {time.perf_counter() - start:.0f} s", soft_wrap=True)
