"""Contestants that misbehave, for the tests of the benchmark: each is imported in a worker's process."""
