"""The parent's end of a worker: one contestant, its deadline, its memory limit, and the killing of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds between two looks at a worker's memory.
POLL = 0.05
#: Variables through which thread pools learn their size.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "FASTCONV_NUM_THREADS", "NPROC", "PJRT_NPROC")


class Overrun(Exception):
    """A worker was killed at its limit of "time" or "memory"."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Died(Exception):
    """A worker ended by itself; the text is the last line it wrote to standard error, or its exit status."""


@dataclass(frozen=True)
class Contestant:
    """A name for tables and the module that a worker imports. platform: the device it computes on, as JAX calls it; empty: the CPU."""

    name: str
    module: str
    platform: str = ""


class Worker:
    """A contestant's process, started on first use and again after a kill.

    generation: how many of its processes have ended; what those had prepared is lost.
    """

    def __init__(self, contestant: Contestant, threads: int, memory_limit: int) -> None:
        self.contestant = contestant
        self.threads = threads
        self.memory_limit = memory_limit
        self.generation = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._pending = b""

    def start(self, limit: float) -> dict[str, Any]:
        """Starts the process; its first message: {"event": "hello", "version"} or {"event": "absent", "why"}."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        # -P: a file of the user's folder that is called torch.py must not be taken for torch.
        command = [sys.executable, "-P", "-m", "fastconv.bench.worker", self.contestant.module, str(self.threads)]
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(self.threads))}
        if self.contestant.platform:  # contestants share the device's memory
            environment["FASTCONV_BENCH_PLATFORM"] = environment["JAX_PLATFORMS"] = self.contestant.platform
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment)
        self._pending = b""
        return self.receive(limit)

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Sends a request and waits for its first answer; starts the process if there is none."""
        if self._process is None:
            self.start(max(limit, 60.0))
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()
        return self.receive(limit)

    def receive(self, limit: float) -> dict[str, Any]:
        """The next message. Past `limit` seconds or the memory limit the process is killed and Overrun raised."""
        assert self._process is not None and self._process.stdout is not None
        end = time.monotonic() + limit
        stream = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0:
                self.stop()
                raise Overrun("time")
            if select.select([stream], [], [], min(left, POLL))[0]:
                chunk = os.read(stream, 1 << 20)
                if not chunk:
                    self._died()
                self._pending += chunk
            elif resident_bytes(self._process.pid) > self.memory_limit:
                self.stop()
                raise Overrun("memory")
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def forget(self) -> None:
        """Lets the process drop what it prepared, if it still runs."""
        if self._process is not None:
            with contextlib.suppress(Overrun, Died):
                self.ask({"do": "forget"}, 60.0)

    def pause(self) -> None:
        """Stops the process where it is, idle threads that spin included, until `resume`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kills the process, if there is one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process = None
        self.generation += 1

    def _died(self) -> None:
        """Raises Died with what the process said last."""
        assert self._process is not None
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.stop()
        raise Died(f"exit status {status}" + (f": {lines[-1]}" if lines else ""))


def resident_bytes(pid: int) -> int:
    """Memory that a process holds now; 0 when it cannot be known."""
    try:
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout) * 1024
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return 0
