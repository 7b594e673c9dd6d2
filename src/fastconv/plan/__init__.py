"""Chooses the algorithm of a problem: filter by refusal, price by a cost model, keep every reason."""

from fastconv.plan.algorithms import ALGORITHMS
from fastconv.plan.machine import Machine, this_machine
from fastconv.plan.planner import Measured, Plan, choose, forced, forced_name
from fastconv.plan.row import BOUNDS, Algorithm
from fastconv.plan.rows.fft import FFT

__all__ = ["ALGORITHMS", "BOUNDS", "FFT", "Algorithm", "Machine", "Measured", "Plan", "choose", "forced", "forced_name", "this_machine"]
