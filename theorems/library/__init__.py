"""The commands as Python functions that return their results; import them with ``from theorems import …``.

The functions print nothing and write files only on request. They start a process only for code that is given by name,
such as a kernel ``MODULE:CALLABLE`` or a statement ``path.py:name``.
"""
