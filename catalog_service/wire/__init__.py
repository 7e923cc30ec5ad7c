"""Requests and answers of ``/api/v1``, errors in them, and tokens. The embedded catalog uses them, too.

Other packages import these modules. Only `tables` and `columns` import Arrow, so that a client which lists tables loads
in a fraction of the time.

    messages     what all requests and answers have in common
    databases    databases, and lists of tables          tables       tables and their snapshots
    columns      columns of tables                       views        views, and new names
    leases       leases of tables                        claims       claims of versions
    service      what a service answers about itself     problems     errors as RFC 9457 documents, and back
    registrations  tables entered from their files
    page_tokens  tokens of the next page                 bearer_token  the rule for the service's token
"""
