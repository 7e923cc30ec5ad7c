"""The catalog: which databases and tables there are, and making and dropping them safely.

Others import only `catalog_service.client` and `catalog_service.wire`; the command line also
`catalog_service.server`.

    client       the `Catalog` protocol and `connect`    remote       its implementation over HTTP
    embedded     its implementation in this process      server       uvicorn
    app, routes  FastAPI                                 security     the one token; guard: who gets in with it
    listening    what a service is told at its start     reach        which brokers tables may name
    lanes        threads for requests, bounded by kind   bodies       bounds of what requests send
    heads        bounds of requests' headers
    stopping     what becomes of requests at the end     answering    from a request to a lane, and to an answer
    refusals     errors as answers                       documented_errors: the same in the OpenAPI document
    connecting   a client's connections, TLS             paths        warehouses' paths
    wire, column_wire, lease_wire, page_wire, messages: what crosses HTTP, as pydantic models
    problems     errors as RFC 9457 documents, and back  pages        page tokens
    request_metrics  what is measured and logged of requests
    service      the use cases                           lifecycle    their steps, made safe against crashes
    tables       one table's files and log               topics       whether two tables would have one topic
    locks        who works at a name, died or not        names        what databases and tables may be called
    definitions  a request's words, what is stored, and what it means; answers: stored rows as wire models
    repository   the only SQL                            schema       its tables
    engine       connections, migrations, SQL errors
"""
