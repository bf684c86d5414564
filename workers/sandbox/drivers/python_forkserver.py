"""A fork server: an interpreter that has imported what work needs, and forks a process for each sandbox.

Started as `python -s -B -S python_forkserver.py [RSCRIPT] work|tests PACKAGE…` in a sandbox of its own,
without a network and without any student's files. It reads orders from a socket on stdin; each comes with the
descriptors of a sandbox that is ready, and one process is forked into it. No student's code ever runs here,
and nothing of a run comes back but its exit code: every fork starts from the same memory.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

import _socket
import gc
import os
import select
import signal
import sys

from python_common import decoded
from python_enter_sandbox import enter, go_to, shut_off, take_streams

IDLE_MS = 600_000
"""Without an order for so long, and without a run, it ends."""
LARGEST = 1 << 17
DESCRIPTORS = 12
"""With each order at most: stdin, stdout, the report, the first process of the sandbox, its root folder, five
namespaces, that of users where it is not ours, and that of processes."""
_FAILED = 70


class Run:
    """A forked process, and the pipe on which its server learns of its start and its end."""

    def __init__(self, pid: int, report: int, first: int) -> None:
        self.pid, self.report, self.first = pid, report, first
        self.ended = os.pidfd_open(pid)

    def tell(self) -> None:
        """The exit code; all else in the sandbox ends with its program, as when bubblewrap started that.

        The number of the process stays taken until the server has closed the pipe.
        """
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        code = found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status
        _write(self.report, f"code {code}\n")
        try:
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def let_go(self) -> None:
        os.waitpid(self.pid, 0)
        for number in (self.ended, self.report, self.first):
            os.close(number)


class ForkServer:
    """Waits for orders and for the ends of what it forked."""

    def __init__(self, control: Any, run: Callable[[], None]) -> None:
        self.control, self.run = control, run
        self.runs: dict[int, Run] = {}
        """By both descriptors that are waited for."""
        self.poll = select.poll()
        self.poll.register(control.fileno(), select.POLLIN)

    def serve(self) -> None:
        """Until the server goes away or wants nothing for long."""
        while True:
            events = self.poll.poll(IDLE_MS)
            if not events and not self.runs:
                return
            for number, _ in events:
                if number == self.control.fileno():
                    if not self._take_order():
                        return
                elif number in self.runs:
                    self._look_at(number)

    def _look_at(self, number: int) -> None:
        run = self.runs[number]
        if number == run.ended:
            self.poll.unregister(number)
            del self.runs[number]
            run.tell()
        else:  # the server has closed its end; the sandbox is being ended
            for one in (run.ended, run.report):
                if self.runs.pop(one, None):
                    self.poll.unregister(one)
            run.let_go()

    def _take_order(self) -> bool:
        message, numbers = self._receive()
        if not message:
            return False
        try:
            pid = self._fork(message, numbers)
        except OSError as error:
            _write(numbers[2], f"error {error}\n")
            for number in numbers:
                os.close(number)
            return True
        for number in (*numbers[:2], *numbers[4:]):
            os.close(number)
        run = Run(pid, numbers[2], numbers[3])
        _write(run.report, f"pid {pid}\n")
        self.runs[run.ended] = self.runs[run.report] = run
        self.poll.register(run.ended, select.POLLIN)
        self.poll.register(run.report, 0)
        return True

    def _receive(self) -> tuple[bytes, tuple[int, ...]]:
        space = _socket.CMSG_SPACE(4 * DESCRIPTORS)
        message, extra, _, _ = self.control.recvmsg(LARGEST, space)
        numbers: tuple[int, ...] = ()
        for _, _, data in extra:
            numbers += tuple(
                int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)
            )
        return message, numbers

    def _fork(self, message: bytes, numbers: tuple[int, ...]) -> int:
        """Fork into the sandbox's namespace of processes. Raises OSError."""
        # for children only; from there the next order leads on, as the kernel lets only root come back
        go_to(numbers[-1])
        pid = os.fork()
        if pid == 0:
            self._be_the_run(decoded(message), numbers)
        return pid

    def _be_the_run(self, order: dict[str, Any], numbers: tuple[int, ...]) -> None:
        try:
            try:
                enter(order, numbers[4], numbers[5:-1])
                shut_off(bytes.fromhex(order["filter"]))
                _write(numbers[2], "in\n")
                take_streams(numbers[:2])
            except OSError as error:
                _write(numbers[2], f"error {error}\n")
                os._exit(_FAILED)
            self.control.detach()  # its number belongs to the talk by now
            self.run()
        finally:
            os._exit(1)


def _write(number: int, text: str) -> None:
    try:
        os.write(number, text.encode())
    except BrokenPipeError:  # the server has given the sandbox up
        pass


def prepared(words: list[str]) -> Callable[[], None]:
    """Import what runs need; returns what a fork does."""
    if words[0] not in ("work", "tests"):
        from python_r_fork_server import prepared_r as prepare
    else:
        from python_preload import prepared_python as prepare
    run: Callable[[], None] = prepare(*words)
    return run


def main() -> None:
    """Prepare, say so, serve."""
    run = prepared(sys.argv[1:])
    control = _socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    gc.collect()
    gc.freeze()  # the collector writes into what it looks at, and each fork would copy it
    control.send(b"ready")
    ForkServer(control, run).serve()


if __name__ == "__main__":
    main()
