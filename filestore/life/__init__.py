"""A table's life of years: which versions stay, tags, consumers, what expiry and the orphans' clean-up remove."""
