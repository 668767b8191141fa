"""Statements on steepest and mirror descent, each without one of its assumptions."""
