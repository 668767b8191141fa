"""Kernels of other libraries whose own signature is not recognised; imported by the sandbox alone.

``kernels.toml`` beside this package lists them. Each module needs one library, and contains none of its code.
"""
