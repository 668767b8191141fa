"""Engines for runs past one machine: units on the workers of a Dask cluster."""
