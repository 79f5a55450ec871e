"""Linear algebra of small matrices without threads that wait by spinning, in the way of those that work.

On a busy machine the Cholesky factor of a 200 x 200 matrix took a thousand times as long with them.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_SMALL = 1000


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def calm_blas(size: int = 0) -> AbstractContextManager[Any]:
    """Within this block BLAS uses one thread, if matrices of this size are small enough for that to be best."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited if size <= _SMALL else nullcontext()
