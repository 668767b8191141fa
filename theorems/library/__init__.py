"""The commands as functions for Python and notebooks: they return what they find; ``from theorems import …``.

Nothing here prints, writes without being asked, or starts a process.
"""
