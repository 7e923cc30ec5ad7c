"""Alembic's scripts: the history of the catalog's schema, applied by `catalog_service.database.engine.migrate`."""
