"""The commands as functions for Python and notebooks: they return their results; ``from theorems import …``.

The functions print nothing and write files only on request. They start a process only for code that is given by name,
such as a kernel as ``MODULE:CALLABLE`` or a statement as ``path.py:name``.
"""
