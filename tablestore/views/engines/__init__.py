"""Computes the rows of views: in this process, or by Spark (decision 152).

query_work     what a refresh by a query computes
local_rows     reads what a query needs of tables, within ``view.local-memory``
local_comparison  compares rows with stored ones, for the doctor. Pure
key_joins      keeps joins by a primary key
local_engine   computes queries in this process
either         `Engines`: this process where it knows how and has the room, else Spark
"""
