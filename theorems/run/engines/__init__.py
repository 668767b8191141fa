"""Engines, which run units of work on several machines; the only engine is a Dask cluster."""
