"""The capabilities (options) of attention kernels in one table, and the claims that are made about a call of a kernel.

`capabilities` is the table. Each capability is a statement ``kernel-…``; all of these statements share the same calls.
A call is built from a plan, which sets its options (`calls.call_space`), and `call_claims` makes every claim about the
call. If a claim fails, `call_shrinker` searches for the smallest call on which the claim still fails; the capabilities
whose options remain in that call are falsified.
"""
