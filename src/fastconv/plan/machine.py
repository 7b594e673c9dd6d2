"""What the cost models know about a machine: a value, passed to the planner as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fastconv.plan.rates import rates


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU, GPU or TPU as the planner sees it. Rates are for all `cores` together unless said; none depends on the live thread count.

    isa: a level of ISA_LEVELS, or "cuda", "rocm", "tpu" (`plan.accelerators`).
    vector_bytes: bytes of one vector register of the ISA level in use.
    gflops: attainable f32 multiply-adds x 2 per second, in 1e9 (f64 runs at half of it).
    bandwidth: bytes per second that a copy moves (read + write) for buffers that fit the last cache.
    call_seconds: what one call of the library, or starting one kernel of an accelerator, costs before any work.
    dot_unit: what multiplies bfloat16 and int8 (_core.dot_unit).
    matrix_gflops, half_gflops, double_gflops: an accelerator's matrix products of f32 (in XLA's default precision), half types, f64.
    """

    name: str
    isa: str
    cores: int
    vector_bytes: int
    gflops: float
    bandwidth: float
    call_seconds: float
    dot_unit: str = "none"
    matrix_gflops: float = 0.0
    half_gflops: float = 0.0
    double_gflops: float = 0.0


#: Vector bytes and multiply-add flops per cycle and core (f32) of each ISA level.
ISA_LEVELS = {"scalar": (16, 8.0), "avx2": (32, 32.0), "avx512": (64, 64.0), "neon": (16, 16.0)}


@cache
def machine_for(isa: str, cores: int, name: str = "", dot_unit: str = "none") -> Machine:
    """A machine of an ISA level with the attainable share of its peak; the rates rank algorithms, they predict no clock."""
    vector_bytes, flops = ISA_LEVELS[isa]
    core = rates("machine").rates
    return Machine(
        name, isa, cores, vector_bytes, cores * flops * core["gigahertz"], cores * core["bandwidth"], core["call_seconds"], dot_unit
    )


def this_machine() -> Machine:
    """The machine this process runs on. The number of cores is the default thread count, not the live one."""
    from fastconv import _core

    return machine_for(_core.isa(), _core.default_threads(), _core.cpu(), dot_unit=_core.dot_unit())
