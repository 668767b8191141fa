"""The source of test functions: each makes a failing call of a kernel and needs only torch and the kernel."""
