"""A page in the browser on one data set: drag a token and see what the theorems say; or as a file, without a server."""
