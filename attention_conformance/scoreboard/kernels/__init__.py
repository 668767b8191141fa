"""Adapters for kernels of other libraries whose own signatures are not recognised.

``kernels.toml`` beside this package lists the kernels. Each module needs one library, and contains none of the
library's code. Only processes that run untrusted code import these modules. In them, queries have E columns.
"""
