"""The changes of managed tables as streams.

changes   ``readStream.format("tablestore")``
options   what a stream may choose
offsets   how far a stream has come, as its checkpoint keeps it
metrics   what is measured of queries
query_id  the name under which a query's batches are known
"""
