"""Progress bars for work that takes some seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 2.0
_BETWEEN = 0.1  # seconds from one drawing to the next: drawing takes longer than many a step


@contextmanager
def progress_bar(description: str, total: int, wanted: bool = True) -> Iterator[Callable[..., None]]:
    """Gives a function to be told how much of `total` is done, and a note to show beside the bar.

    The bar appears after two seconds, if it is wanted, and on a terminal only.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = last = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(description, total=total, visible=False)

        def tell(done: int, note: str = "") -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < _BETWEEN and done < total:
                return
            last = now
            text = f"{description} {note}" if note else description
            progress.update(task, completed=done, description=text, visible=now - start > _PATIENCE)
            progress.refresh()

        yield tell
