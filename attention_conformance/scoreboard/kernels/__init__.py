"""Kernels of other libraries whose own signature is not recognised; imported by the sandbox alone.

``kernels.toml`` beside this package lists them. A module needs one library, and has none of its code.
"""
