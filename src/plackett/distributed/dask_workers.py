"""One task on each worker of a Dask cluster, all at the same time, which can exchange their results.

If a worker is lost or a task fails, none can continue: the others are stopped, and an error says why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from plackett.errors import MissingDependencyError, PlackettError

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_STOP = 30.0


class WorkerLostError(PlackettError):
    """A worker of the cluster ended before its task did."""


def import_distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingDependencyError("distributed", "distributed", "work on several machines") from None
    return distributed


@contextmanager
def open_client(client: Any) -> Iterator[Any]:
    """A client of a cluster: the given one, one for the address of a scheduler, or the default one."""
    distributed = import_distributed()
    if isinstance(client, str):
        with distributed.Client(client, set_as_default=False) as opened, opened.as_current():
            yield opened
        return
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError:
            raise ValueError(
                "client must be a distributed.Client or an address if no client is open, got None"
            ) from None
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise ValueError(f"client must be a synchronous distributed.Client or an address, got {client!r}")
    with client.as_current():
        yield client


def addresses(client: Any) -> list[str]:
    """The addresses of the present workers."""
    return sorted(client.nthreads())


class Meeting:
    """Where tasks wait for each other. An actor: it lives on one worker, and all tasks call it there."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._turns = [0] * members
        self._rounds: dict[int, tuple[dict[int, Any], asyncio.Future[list[Any]]]] = {}

    async def gather(self, rank: int, value: Any) -> list[Any]:
        """The values of all members, by rank, once the last has come."""
        turn = self._turns[rank]
        self._turns[rank] += 1
        if turn not in self._rounds:
            self._rounds[turn] = {}, asyncio.get_running_loop().create_future()
        values, everyone = self._rounds[turn]
        values[rank] = value
        if len(values) == self._members:
            everyone.set_result([values[member] for member in range(self._members)])
            del self._rounds[turn]
        return await everyone


@dataclass
class Member:
    """A task's place in a meeting."""

    name: str
    meeting: Any
    members: int
    rank: int

    def gather(self, value: Any) -> list[Any]:
        """The values of all members, by rank."""
        answer = self.meeting.gather(self.rank, value)
        while self.name not in _stopped:  # Dask itself would wait for an actor that is lost
            with suppress(import_distributed().TimeoutError):
                return list(answer.result(timeout=_SECONDS_BETWEEN_LOOKS))
        raise WorkerLostError("another worker has ended")

    def total(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum over members, in the same order for all of them."""
        return np.asarray(np.sum(self.gather(values), axis=0))


@contextmanager
def all_present(client: Any, workers: Sequence[str]) -> Iterator[None]:
    """Errors in this block that a lost worker may have caused say so."""
    try:
        yield
    except Exception as error:
        _check_present(client, workers, error)
        raise


def _check_present(client: Any, workers: Sequence[str], cause: Exception | None = None) -> None:
    lost = sorted(set(workers) - set(addresses(client)))
    if lost:
        raise WorkerLostError(
            f"the fit ended because {', '.join(lost)} left the cluster; the model is unchanged: fit again with the "
            "remaining workers"
        ) from cause


def run_together(
    client: Any, workers: Sequence[str], task: Callable[..., Any], arguments: Sequence[Sequence[Any]], stop: Any
) -> list[Any]:
    """task(member, *arguments) on every worker. `stop` is called on the workers that are left if one fails.

    Futures among the arguments must lie on the worker that is given them, see `hold`.
    """
    name = uuid4().hex
    meeting = client.submit(Meeting, len(workers), actor=True, workers=[workers[0]], pure=False)
    tasks: list[Any] = []
    try:
        _wait_for([meeting], client, workers)
        # Not the future: see `hold`.
        place = (name, meeting.result(), len(workers))
        tasks += [
            client.submit(_as_member, task, place, rank, *given, workers=[worker], pure=False)
            for rank, (worker, given) in enumerate(zip(workers, arguments, strict=True))
        ]
        _wait_for(tasks, client, workers)
        return list(client.gather(tasks))
    except BaseException:
        _stop_all(client, name, tasks, workers, stop)
        raise


def hold(client: Any, workers: Sequence[str], parts: Sequence[Any]) -> list[Any]:
    """One part on each worker, each a separate future.

    If a worker is lost, Dask asks others to drop their copies of its data, and a worker that gets this request while a
    task uses the copy ends itself. Data held here is not a copy of anything.
    """
    held = [
        client.submit(_held, part, workers=[worker], pure=False) for worker, part in zip(workers, parts, strict=True)
    ]
    _wait_for(held, client, workers)
    return held


def _wait_for(futures: Sequence[Any], client: Any, workers: Sequence[str]) -> None:
    """However long it takes: workers may be busy with other work, or with reading the data."""
    distributed = import_distributed()
    pending = list(futures)
    while pending:
        with suppress(distributed.TimeoutError, CancelledError):
            distributed.wait(pending, timeout=_SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED")
        if _failed(futures):
            # A lost worker may be the reason, which the scheduler learns later, or the failure of another task.
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        _check_present(client, workers)
        failed = _failed(futures)
        if failed:
            min(failed, key=_is_consequence).result()
        pending = [future for future in futures if not future.done()]


def _failed(futures: Sequence[Any]) -> list[Any]:
    return [future for future in futures if future.status in ("error", "cancelled", "lost")]


def _is_consequence(future: Any) -> bool:
    """Whether a task failed only because another one did, whose error says more."""
    return future.status != "error" or isinstance(future.exception(), WorkerLostError)


def _stop_all(client: Any, name: str, tasks: Sequence[Any], workers: Sequence[str], stop: Callable[[], None]) -> None:
    """End the tasks of the workers that are left. A worker that does not end its task is restarted."""
    client.cancel(tasks, force=True)  # tasks that have not started will not start
    running = sorted(set(addresses(client)) & set(workers))
    client.run(_stop, name, stop, workers=running, on_error="ignore")
    end = time.monotonic() + _SECONDS_TO_STOP
    while running and time.monotonic() < end:
        # Ask the workers themselves: after a loss the scheduler may believe that a running task has ended.
        found = client.run(_is_running, name, workers=running, on_error="ignore")
        running = [worker for worker, is_running in found.items() if is_running]
        time.sleep(_SECONDS_BETWEEN_LOOKS if running else 0.0)
    if running:
        with suppress(Exception):  # impossible without a nanny
            client.restart_workers(running, timeout=_SECONDS_TO_STOP, raise_for_error=False)


# On the workers

_running: list[str] = []  # meetings that tasks of this process take part in
_stopped: set[str] = set()  # meetings that have lost a member


def _as_member(task: Callable[..., Any], place: tuple[str, Any, int], rank: int, *arguments: Any) -> Any:
    member = Member(*place, rank)
    _running.append(member.name)
    try:
        return task(member, *arguments)
    finally:
        _running.remove(member.name)


def _is_running(name: str) -> bool:
    return name in _running


def _stop(name: str, stop: Callable[[], None]) -> None:
    _stopped.add(name)
    stop()


def _held(part: Any) -> Any:
    return part
