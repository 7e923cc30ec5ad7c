"""The join that the query of a view is."""

from __future__ import annotations

from tablestore.views.plan.join_query import JoinQuery
from tablestore.views.plan.two_tables import join_of
from tablestore.views.sql.view_query import parse_view
from tablestore.views.view import View

__all__ = ["join_of_view"]


def join_of_view(view: View) -> JoinQuery:
    """Returns the join, by the columns that the tables of the view have now."""
    return join_of(parse_view(view.query), {table.identifier: table.definition for table in view.inputs})
