"""Creates and drops databases and tables, safely against crashes: a row, a log and files become one table.

lifecycle    the order of all steps, and what is left of them after a crash
construction  the steps for one table                steps        the operations on one table's files and log
topics       whether two tables would share a topic   registration  enters tables whose files are there
candidates   which folders can be registered without a choice of the user
"""
