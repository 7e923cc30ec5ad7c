"""Change data of a write: which is written, what the images of a row are, and the files that hold them."""
