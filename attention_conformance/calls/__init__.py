"""Calls of attention kernels: how they are drawn and written to files, and what a correct kernel returns.

A call is built from a plan, which sets each option to one of a few levels (`call_space`, `call_builder`).
`attention_rows` and `further_rows` compute a call's results from the definition of attention, with bounds of a correct
kernel's rounding errors.
"""
