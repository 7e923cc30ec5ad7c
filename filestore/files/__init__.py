"""Data files: written, opened, decoded row group by row group, and what is known of them without reading."""
