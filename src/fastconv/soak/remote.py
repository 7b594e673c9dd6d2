"""A library in another process, behind a pipe: built for a CPU that this machine only emulates (tests/runner/runner.cc)."""

from __future__ import annotations

import shlex
import struct
import subprocess
from collections.abc import Sequence

import numpy as np

from fastconv import _core
from fastconv.problem import ConvProblem
from fastconv.reference import Array
from fastconv.soak.draws import Buffers
from fastconv.soak.memory import Cells

_HELLO, _PROBLEM, _KERNEL = 0, 1, 2


class Remote:
    """Runs problems and kernels in the process that `command` starts, such as "qemu-aarch64-static build/neon/runner"."""

    def __init__(self, command: str) -> None:
        try:
            self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise ValueError(f"runner must be a command that starts, got {command!r}: {error}") from None
        self._command = command
        self._send(_words(_HELLO))
        self.isas = tuple(self._receive().decode().split(","))
        self.kernels = _core.kernels_of(self._receive().decode())

    def run(self, problem: ConvProblem, code: int, level: str, threads: int, data: Buffers, cells: Cells) -> str | None:
        """Fills `cells` with what a call of the library leaves there; the message of a call that failed, or None."""
        words = problem.words(code)
        sizes = (data.lhs.size, data.rhs.size, 0 if data.bias is None else data.bias.size, cells.array.size)
        ranges = [end for size in sizes for end in (0, size)]
        self._send(
            _words(_PROBLEM),
            _block(level.encode()),
            _words(threads, len(words), *words, len(ranges), *ranges, cells.first * cells.memory.itemsize),
            *(_block(b"" if array is None else array.tobytes()) for array in (*data, cells.memory)),
        )
        return self._result(cells.memory)

    def run_kernel(self, index: int, sizes: Sequence[int], a: Array, b: Array, c: Array) -> None:
        """Runs kernel `index` of `kernels` alone, as `_core.run_kernel` does; c holds what is added to, then the result."""
        self._send(_words(_KERNEL, index, len(sizes), *map(int, sizes)), *(_block(array.tobytes()) for array in (a, b, c)))
        if (message := self._result(c)) is not None:
            raise ValueError(message)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _result(self, into: Array) -> str | None:
        (status,) = struct.unpack("=q", self._exactly(8))
        block = self._receive()
        if status != 0:
            return block.decode()
        into.reshape(-1)[...] = np.frombuffer(block, into.dtype)
        return None

    def _send(self, *parts: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join(parts))
            self._process.stdin.flush()
        except BrokenPipeError:
            self._ended()

    def _receive(self) -> bytes:
        (size,) = struct.unpack("=q", self._exactly(8))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        assert self._process.stdout is not None
        block = self._process.stdout.read(size)
        if len(block) < size:
            self._ended()
        return block

    def _ended(self) -> None:
        raise AssertionError(f"{self._command} ended with status {self._process.wait()}")


def _words(*words: int) -> bytes:
    return struct.pack(f"={len(words)}q", *words)


def _block(block: bytes) -> bytes:
    return _words(len(block)) + block
