"""A failing call as a test function that needs only torch and the kernel: how the function is written and run."""
