"""Writing to slots: how a write, or a fold of pending runs, makes new files, deletion vectors, runs and a proposal."""
