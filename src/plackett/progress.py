"""Progress bars for work that takes some seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 2.0
_BETWEEN = 0.1  # seconds between redraws: drawing takes longer than many steps


@contextmanager
def progress_bar(description: str, total: int, wanted: bool = True) -> Iterator[Callable[..., None]]:
    """Yield a function that takes how much of `total` is done, and optionally a note to show with the bar.

    The bar appears after two seconds, if `wanted` is true and only on a terminal.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = last = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False, redirect_stdout=False) as progress:
        task = progress.add_task(description, total=total, visible=False)

        def update(done: int, note: str = "") -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < _BETWEEN and done < total:
                return
            last = now
            text = f"{description} {note}" if note else description
            progress.update(task, completed=done, description=text, visible=now - start > _PATIENCE)
            progress.refresh()

        yield update
