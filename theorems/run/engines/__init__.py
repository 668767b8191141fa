"""Past one machine: units on any ``concurrent.futures.Executor``, on Dask."""
