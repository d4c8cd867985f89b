"""Splits, parquet rows, filters, bands and hashes of the benchmark's tasks."""
