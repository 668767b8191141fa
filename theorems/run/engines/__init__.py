"""Engines, which run units on several machines: the workers of a Dask cluster."""
