"""``json``, and JSON texts and values as other formats have them, too (FORMATS.md)."""
