"""Storages, which hold the files of tables (FORMAT.md).

interface       `Storage`, which the rest of `filestore` knows, and what it returns
locations       from a location (path or URL) to its storage
schemes         which locations are local, and which are S3's
local           `LocalStorage`: the local file system
objects         `ObjectStorage`: any store of objects, through a client
client          `ObjectClient`: the requests that such a store answers
obstore_client  S3 through obstore
fsspec_client   every file system of fsspec
s3fs_client     S3 through s3fs
multipart       large objects in S3, uploaded in parts
s3_settings     how a process reaches S3, and finds its credentials
credentials     finds them again while the process runs
renewed_client  a client that goes on with those
refusals        the errors, one function for each cause
retries         which requests are repeated
sparse          objects as local files of which only some ranges are fetched
kept            bytes of objects that are kept in memory
uploads         objects that are being uploaded
race_probe      whether a store lets exactly one of several writers win
"""
