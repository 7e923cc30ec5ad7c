"""The catalog: which databases and tables there are, and making and dropping them safely.

Others import only `catalog_service.client` and `catalog_service.wire`; the command line also
`catalog_service.server`.

    wire         what crosses HTTP, as pydantic models          problems    errors as RFC 9457 documents and
    back client       the `Catalog` protocol and `connect`           remote      its implementation over HTTP
                                                                embedded    its implementation in this process
    app, routes  FastAPI                                        server      uvicorn
    service      the use cases                                  lifecycle   the steps, made safe against
    crashes tables       one table's files and log                      locks       who works at a name, died
    or not repository   the only SQL                                   engine      connections, migrations,
    SQL errors
"""
