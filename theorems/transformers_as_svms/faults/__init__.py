"""Planted faults in the computations of the statements on W, its factors and mixing attention."""
