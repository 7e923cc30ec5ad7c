"""What everything here knows: rules and values without rows, requests or HTTP.

names        the rule for names of databases and tables
paths        locations of warehouses, as users write them
view_definition  what a view is
"""
