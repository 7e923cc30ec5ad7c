"""The use cases of the catalog, without HTTP: requests in, answers out. The service and the embedded catalog use them.

opening      opens a catalog, with its parts         service      the use cases
views        those of views                          broker_policy  which brokers tables may name
registering  that of entering tables from their files
definitions  requests as definitions of tables       answers      stored rows as answers
"""
