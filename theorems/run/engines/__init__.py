"""Past one machine: units on the workers of a Dask cluster."""
