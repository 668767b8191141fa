"""Statements on steepest and mirror descent without one of their assumptions."""
