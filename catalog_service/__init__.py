"""The catalog knows which databases and tables exist, and creates and drops them safely.

Other packages import only `catalog_service.client` and the modules of `catalog_service.wire`; the command line also
imports `catalog_service.server`. The packages, each above those that it uses:

    client       the catalog as programs use it, over    server       the catalog service: FastAPI, uvicorn
                 HTTP or embedded
    downgrade    takes migrations back, as a command
    use_cases    requests in, answers out; no HTTP
    tables       a table's row, log and files: created and dropped in an order that survives crashes
    database     the only SQL: rows, schema, locks       wire         requests, answers and errors of the API
    model        names, paths of warehouses, definitions of views

`tables` and `database` know nothing of `wire`, and `client` and `server` nothing of each other.
"""
