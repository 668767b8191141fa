"""A failing call as a test function that needs torch and the kernel alone: how it is written down, and tried."""
