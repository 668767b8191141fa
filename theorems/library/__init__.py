"""The commands as functions for Python and notebooks: they return their results; ``from theorems import …``.

Nothing here prints, writes without being asked, or starts a process.
"""
