"""Forked processes that need no imports, so that many of them run quickly."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

_FORK = multiprocessing.get_context("fork")


class Fork:
    """A child process that does some work and sends back the result."""

    def __init__(self, work: Callable[[], Any], **environment: str) -> None:
        self._receiver, sender = _FORK.Pipe(duplex=False)
        self.process = _FORK.Process(target=self._run, args=(work, sender, environment), daemon=True)
        self.process.start()
        sender.close()

    @staticmethod
    def _run(work: Callable[[], Any], sender: Any, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        try:
            sender.send((work(), None))
        except BaseException as error:
            sender.send((None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        sender.close()

    def outcome(self, seconds: float = 1200.0) -> tuple[Any, str | None]:
        """The result, and the error if it failed."""
        try:
            if not self._receiver.poll(seconds):
                self.process.kill()
                return None, f"no answer within {seconds} seconds"
            return self._receiver.recv()  # type: ignore[no-any-return]
        except EOFError:
            return None, "killed"
        finally:
            self.process.join()


def forks(count: int, work: Callable[[], Any], **environment: str) -> list[Fork]:
    """Processes with the environment that torchrun would set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
    return [Fork(work, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(count)]


def together(count: int, work: Callable[[], Any]) -> list[Any]:
    """Their results by rank; raises if one of them failed."""
    outcomes = [fork.outcome() for fork in forks(count, work)]
    for _, problem in outcomes:
        if problem is not None:
            raise RuntimeError(problem)
    return [found for found, _ in outcomes]
