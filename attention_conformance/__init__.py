"""The conformance suite for attention kernels: interfaces, claims about calls, scoreboard.

It imports the engine (:mod:`theorems.core`, :mod:`theorems.run`) and is what ``--attention`` leads to.
"""
