"""SQL: a table store as a catalog of Spark, ``spark.sql.catalog.<name> = tablestore.spark.TablestoreCatalog``.

Spark calls Java, which is in ``tablestore/spark/jvm``; that asks this package, which decides everything (decision 102).

    bridge      answers Java's requests
    process     a Python process for JVMs without a Python driver
    places      the table stores that sessions name
    statements  what each request does
    databases   requests about databases
    listing     the tables and views of a database, for programs
    creation    the statement that makes a materialized view again
    columns     schemas and changes of columns, as Spark describes them
    procedures  ``CALL catalog.sys.<name>(…)``, each a `procedure`; `view_procedures` are those of materialized views
    streams     the procedures that start, list and stop streaming queries
    dialect     statements that Spark's grammar lacks
    jar         the Java classes, compiled
"""
