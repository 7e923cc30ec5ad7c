"""The catalog's database: the only SQL. It knows nothing of requests and answers.

repository   databases, tables, leases, log debts    claims       claims of versions, and the catalog's settings
schema       the SQL tables, and their rows          definitions  definitions as the JSON of a row, and back
engine       connections, migrations, SQL errors     migrations   Alembic's scripts
url          reads and shows the URL of a database   locks        locks of databases' and tables' names
stored_rows  rows of the SQL tables as values        held_commits  who keeps the commits of a warehouse apart
name_errors  errors of names that are not there, or are there already
"""
