"""Look-ups of new events in another table, whose results are added to a view (decision 113).

event_commits  the files with the events that commits have inserted. Pure
event_work     looks some events up: a task
event_check    compares the rows of such a view with its events, for the doctor
fingerprint    the number of rows and a sum of their hashes, for comparisons in any order. Pure
event_method   `EventMethod`: the refreshes of such a view
"""
