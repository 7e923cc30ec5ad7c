"""Rules and values that all other parts of the catalog use; there are no rows, requests or HTTP here.

names        the rule for names of databases and tables
paths        locations of warehouses, as users write them
view_definition  what a view is
"""
