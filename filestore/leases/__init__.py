"""Leases of writers: they show other processes which log transactions belong to a write in progress.

interface  `WriterLeases`, which the rest knows
locks      a lease is a locked file: for processes of one machine, and certain
objects    a lease is an object that its writer renews: for any machine, and not certain, so that a fence has to follow
beats      the thread that renews one
watch      which leases of others have not been renewed for too long. Pure
opening    which of the two a table has
"""
