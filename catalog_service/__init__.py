"""The catalog: which databases and tables there are, and making and dropping them safely.

Others import only `catalog_service.client` and `catalog_service.wire`; the command line also
`catalog_service.server`.

    client       the `Catalog` protocol and `connect`    remote       its implementation over HTTP
    embedded     its implementation in this process      server       uvicorn
    app, routes  FastAPI                                 security     the one token
    wire, column_wire, lease_wire, messages: what crosses HTTP, as pydantic models
    problems     errors as RFC 9457 documents, and back  pages        page tokens
    request_metrics  what is measured of requests
    service      the use cases                           lifecycle    their steps, made safe against crashes
    tables       one table's files and log               topics       whether two tables would have one topic
    locks        who works at a name, died or not        names        what databases and tables may be called
    definitions  a request's words, what is stored, and what it means; answers: stored rows as wire models
    repository   the only SQL                            schema       its tables
    engine       connections, migrations, SQL errors
"""
