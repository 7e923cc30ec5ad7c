"""Maintained views: tables whose rows are the result of a query, and which refreshes keep so (docs/views.md).

sql            the text of a view's query
plan           how a view of any query is refreshed
engines        what computes rows: this process, or Spark
joins          computes joins by a primary key bucket by bucket
join_arguments  reads the arguments of `tablestore.Store.maintain_join`. Pure
tasks          the place where tasks run that Python computes
events         look-ups of new events in another table
query_method   views of any query
refresh_method  `RefreshMethod`: what these two have in common
view           `View`: a refresh is one commit, which names its versions
refresh_plan   what a refresh has to read, from the versions of the view and of its inputs. Pure
holds          keeps what a view has read from expiring
examination    the doctor's findings about a view. Pure
view_errors    errors about the tables of a view, with its name
view_creation  the table of a view. Pure but for what an engine says of its columns
creation       creates the table of a view
opening        opens, lists, drops and compares views
shared_versions  of each table the one version that the views of a chain read
refresh_order  the order of views that read other views. Pure
refreshing     refreshes views, each behind those that it reads
upkeep         refreshes all views of a catalog, round after round
"""
