"""Kernels of other libraries, where their own signature is none that is recognised; imported by the sandbox alone.

``kernels.toml`` beside this package lists them. A module needs one library, and has none of its code.
"""
