"""The credentials of this process for S3, which are looked for again while it runs.

botocore renews those of roles before they expire. What it has read from a file or from the environment it keeps for
ever, while mounted secrets and vaults' agents replace such files. So they are looked for again every few minutes, and
when the store has refused them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from filestore.ambient import Ambient, system_ambient
from filestore.errors import TableStoreError, Unavailable
from filestore.storage.refusals import BUSY
from filestore.storage.s3_settings import S3Settings, credentials_of, session_of

__all__ = ["LOOKED_FOR_AFTER_S", "FoundCredentials", "aio_session", "plain_session", "renewing"]

logger = logging.getLogger(__name__)

LOOKED_FOR_AFTER_S = 300
"""The seconds after which credentials that nothing renews are looked for again."""

_ROLE_AFTER_S = 60  # a role's credentials differ each time: a refusal leads to new ones once in so many seconds


class FoundCredentials:
    """Credentials that botocore finds in the environment, in files, or as the machine's role. Threads may share it.

    Args:
        settings: Whose credentials.
        ambient: The clock.

    Attributes:
        generation: How often others than before were found. A client that keeps credentials is opened anew then.

    Raises:
        Unavailable: ``no-credentials``.
        Unsupported: ``storage-package``.
    """

    def __init__(self, settings: S3Settings, ambient: Ambient | None = None) -> None:
        self.generation = 0
        self._settings = settings
        self._now_s: Callable[[], float] = (ambient or system_ambient()).monotonic_s
        self._lock = threading.Lock()
        self._found: Any = credentials_of(settings)
        self._looked_s = self._now_s()

    def current(self) -> Any:
        """Returns the credentials as of now (botocore's ``ReadOnlyCredentials``)."""
        with self._lock:
            if not _renews_itself(self._found) and self._now_s() - self._looked_s >= LOOKED_FOR_AFTER_S:
                self._look()
            found = self._found
        return found.get_frozen_credentials()

    def renew(self, generation: int) -> bool:
        """Looks for others after the store has refused those of a generation; returns whether there are others now."""
        with self._lock:
            if self.generation != generation:
                return True
            if not _renews_itself(self._found) or self._now_s() - self._looked_s >= _ROLE_AFTER_S:
                self._look()
            return self.generation != generation

    def _look(self) -> None:
        """Looks for others. Those from before stay if there are none, as while a file is being replaced."""
        from botocore.exceptions import BotoCoreError  # not installed with the other clients

        self._looked_s = self._now_s()
        try:
            found = credentials_of(self._settings)
            differ = found.get_frozen_credentials() != self._found.get_frozen_credentials()
        except (BotoCoreError, TableStoreError) as error:
            logger.warning("the credentials for S3 are kept, since no others were found: %s", error)
            return
        if differ:
            self._found = found
            self.generation += 1


def plain_session(settings: S3Settings, credentials: FoundCredentials) -> Any:
    """Returns botocore's session, whose clients sign each request with the credentials as of then."""
    from botocore.credentials import Credentials

    class Current(Credentials):  # type: ignore[misc]
        def get_frozen_credentials(self) -> Any:
            return credentials.current()

    class Source:
        def load_credentials(self) -> Credentials:
            return Current("", "")

    session = session_of(settings.profile)
    session.register_component("credential_provider", Source())
    return session


def aio_session(settings: S3Settings, credentials: FoundCredentials) -> Any:
    """Returns the same of aiobotocore, for s3fs."""
    from aiobotocore.credentials import AioCredentials
    from aiobotocore.session import AioSession

    class Current(AioCredentials):  # type: ignore[misc]
        async def get_frozen_credentials(self) -> Any:
            return credentials.current()  # a thread for it could not be started while the interpreter shuts down

    class Source:
        async def load_credentials(self) -> AioCredentials:
            return Current("", "")

    session = AioSession(profile=settings.profile)
    session.register_component("credential_provider", Source())
    return session


@contextmanager
def renewing(credentials: FoundCredentials | None) -> Iterator[None]:
    """Looks for other credentials if the store refuses these; if there are any, raises an error that says to retry."""
    generation = 0 if credentials is None else credentials.generation
    try:
        yield
    except Unavailable as error:
        if credentials is None or error.code != "no-permission" or not credentials.renew(generation):
            raise
        raise Unavailable(f"{error.message}; other credentials were found since: retry", code=BUSY) from error


def _renews_itself(found: Any) -> bool:
    from botocore.credentials import RefreshableCredentials

    return isinstance(found, RefreshableCredentials)
