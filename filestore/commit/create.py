"""Creates version 0 of a table (FORMAT.md section 2). All but one conditional write is pure."""

from __future__ import annotations

from collections.abc import Mapping

from filestore import layout
from filestore.ambient import Ambient
from filestore.commit.held import held
from filestore.commit.plan import commit_info
from filestore.commit.proposal import Proposal
from filestore.delta.actions import LOG_DOMAIN, Action, domain_action, metadata_action, protocol_action
from filestore.delta.entry import encode
from filestore.delta.log import DeltaLog
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Operation

__all__ = ["create"]


def create(
    log: DeltaLog,
    definition: TableDefinition,
    table_id: str,
    log_identity: Mapping[str, str] | None,
    ambient: Ambient,
) -> TableState:
    """Writes version 0 and returns the newest state. It is idempotent for one `table_id`.

    Raises:
        AlreadyExists: another table is at this location.
    """
    actions = _actions(definition, table_id, log_identity, ambient, catalog_commits=held(log.storage))
    try:
        log.storage.write_new(layout.join(log.location, layout.log_entry_path(0)), encode(actions))
    except AlreadyExists:
        state = log.latest()
        if state.table_id != table_id:
            raise AlreadyExists(
                f"{log.location} holds table {state.table_id} already: drop it or choose another name",
                code="table-exists",
            ) from None
        return state
    return TableState.initial(0, actions)


def _actions(
    definition: TableDefinition,
    table_id: str,
    log_identity: Mapping[str, str] | None,
    ambient: Ambient,
    *,
    catalog_commits: bool,
) -> list[Action]:
    now = ambient.now_ms()
    proposal = Proposal(Operation.CREATE, ambient.new_id(), -1)
    actions = [
        commit_info(proposal, None, now),
        protocol_action(fences=True, catalog_commits=catalog_commits),
        metadata_action(definition, table_id, now),
    ]
    if log_identity is not None:
        actions.append(domain_action(LOG_DOMAIN, {"identity": dict(log_identity), "open": []}))
    return actions
