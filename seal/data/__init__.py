"""Task rows: selected, mixed, and written as parquet files."""
