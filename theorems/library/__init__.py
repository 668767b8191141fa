"""What ``from theorems import …`` hands to Python and to notebooks: the commands as functions that return what they
found.

Nothing here prints, writes without being asked, or starts a process.
"""
