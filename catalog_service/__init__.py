"""The catalog knows which databases and tables exist, and creates and drops them safely.

Other packages import only `catalog_service.client` and `catalog_service.wire`; the command line also imports
`catalog_service.server`.

    client       the `Catalog` protocol and `connect`    remote       its implementation over HTTP
    embedded     its implementation in this process      server       uvicorn
    app, routes  FastAPI                                 security     the token; guard: checks it for each request
    listening    a service's settings and its socket     broker_policy  which brokers tables may name
    lanes        threads for requests, bounded by kind   bodies       bounds of requests' bodies
    heads        bounds of requests' headers
    stopping     ends running requests at a stop         answering    runs a request in a lane and answers it
    refusals     errors as HTTP answers                  documented_errors: the same in the OpenAPI document
    connecting   a client's connections, TLS             paths        warehouses' paths
    wire, claim_wire, column_wire, lease_wire, page_wire, service_wire, view_wire, messages: pydantic models of requests
    and answers                                          bearer_token  the rule for the token, for both sides
    problems     errors as RFC 9457 documents, and back  pages        page tokens
    request_metrics  metrics and access log of requests
    service      the use cases                           lifecycle    their steps, made safe against crashes
    views        the use cases of views                  view_definition  what a view is
    construction  the steps for one table                tables       one table's files and log
    topics       whether two tables would share a topic  view_routes  FastAPI, for views and names
    held_commits  who keeps commits apart                claims       a client's claims of versions
    locks        locks of databases' and tables' names   names        the rule for names of databases and tables
    definitions  requests as definitions of tables       stored_definitions  definitions as JSON, and back
    answers      stored rows as wire models              opening      opens a catalog, with its parts
    repository, claim_rows: the only SQL                 schema       its tables
    engine       connections, migrations, SQL errors     downgrade    takes migrations back, as a command
    database_url  reads and shows the URL of its database
"""
