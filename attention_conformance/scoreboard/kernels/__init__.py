"""Adapters for kernels of other libraries whose own signature is not recognised; only the sandbox imports them.

``kernels.toml`` beside this package lists the kernels. Each module needs one library, and contains none of its code.
"""
