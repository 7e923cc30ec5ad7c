"""The rules of retention: which versions stay readable, what running readers hold, and how long each file is needed."""
