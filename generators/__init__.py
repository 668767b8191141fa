"""Assumptions as exact predicates, and Hypothesis strategies that build data satisfying the assumptions."""
