"""What an attention kernel may be able to do: one table, and what is looked at in a call.

`table` has the capabilities, each a statement ``kernel-…``: a view of calls that all capabilities share. A call is made
from a plan of the space of options (`generators.call_space`), `examination` makes every claim about it, `smaller` looks
for the smallest call that still fails. The capabilities whose options that one has left are falsified.
"""
