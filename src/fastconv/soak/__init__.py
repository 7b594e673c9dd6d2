"""Random problems through every driver at every instruction-set level, against the written-out definition (needs Hypothesis)."""
