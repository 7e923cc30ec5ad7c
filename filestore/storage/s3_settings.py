"""Settings by which a process reaches S3, without secrets: each process finds the credentials by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filestore.errors import InvalidRequest, Unavailable, Unsupported

if TYPE_CHECKING:
    from botocore.credentials import Credentials

__all__ = ["CONNECT_S", "LONGEST_S", "REQUEST_S", "S3Settings", "credentials_of", "plain_client", "session_of"]

CONNECT_S, REQUEST_S = 5, 15
"""The seconds that a client waits for a connection, and for a reply or the next bytes of one.

A store that is healthy answers within a second. The wait is short beside a lease's time-out, because a request that is
lost must not keep a writer from renewing its lease.
"""

LONGEST_S = 300
"""The seconds that a reply may take in all while its bytes keep arriving, as over a slow line."""

_SECRET_WORDS = ("secret", "access_key", "access-key", "token", "password", "session")
_DEFAULT_REGION = "us-east-1"
_AWS = "https://s3.amazonaws.com"
_LABELS = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Settings to reach S3. They are pickled, logged and stored in options, so they never contain a secret.

    Credentials are found by each process: in the environment (``AWS_ACCESS_KEY_ID`` and so on), in the files of the AWS
    command line, or from the machine's role, in botocore's order.

    Attributes:
        endpoint: The URL of a server other than AWS's, such as ``http://127.0.0.1:9000``. None takes
            ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL`` or the profile's.
        region: The region; None takes ``AWS_REGION`` or the profile's, or else ``us-east-1``.
        path_style: Whether the bucket is in the path of URLs and not in the host's name; None: with an endpoint only.
        profile: A profile in ``~/.aws``; None takes ``AWS_PROFILE``, or else the default one.
        anonymous: Requests are not signed: for public data.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    anonymous: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> S3Settings:
        """Reads settings from texts, such as ``{"endpoint": "http://127.0.0.1:9000", "path-style": "true"}``.

        Raises:
            InvalidRequest: ``bad-storage-option``: a name is unknown, a value has a wrong form, or it is a secret.
        """
        names = {field.name.replace("_", "-"): field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in options.items():
            plain = name.lower().replace("_", "-")
            if plain not in names:
                raise _unknown(name, sorted(names))
            values[names[plain]] = _flag(name, text) if plain in ("path-style", "anonymous") else text
        settings = cls(**values)
        if settings.endpoint is not None:
            _check_endpoint(settings.endpoint)
        return settings

    def options(self) -> dict[str, str]:
        """Returns the settings that are not left to each process, as `of` reads them."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        given = {field.name: value for field, value in values if value != field.default}
        return {
            name.replace("_", "-"): str(value).lower() if isinstance(value, bool) else value
            for name, value in given.items()
        }

    def delta_options(self, bucket: str) -> dict[str, str]:
        """Returns ``storage_options`` for deltalake and polars, with the credentials that this process has now.

        REQUIRES: the settings are resolved.
        """
        endpoint, path_style = self.address_of(bucket)
        options = {"aws_region": str(self.region), "aws_conditional_put": "etag"}
        options["aws_virtual_hosted_style_request"] = "false" if path_style else "true"
        if endpoint is not None:
            options |= {"aws_endpoint_url": endpoint, "aws_endpoint_url_s3": endpoint}  # the second counts more
            options["aws_allow_http"] = "true" if endpoint.startswith("http://") else "false"
        if self.anonymous:
            return options | {"aws_skip_signature": "true"}
        frozen = credentials_of(self).get_frozen_credentials()
        options |= {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key}
        return options | ({"aws_session_token": frozen.token} if frozen.token else {})

    def resolved(self) -> S3Settings:
        """Fills in what this process's environment and profile say.

        Raises:
            InvalidRequest: ``bad-storage-option``.
            Unsupported: ``storage-package``.
        """
        session = session_of(self.profile)
        endpoint = self.endpoint or _endpoint_of(session)
        # botocore itself reads only AWS_DEFAULT_REGION
        region = self.region or os.environ.get("AWS_REGION") or session.get_config_variable("region") or _DEFAULT_REGION
        path_style = self.path_style if self.path_style is not None else endpoint is not None
        if endpoint is not None:
            _check_endpoint(endpoint)
        return S3Settings(endpoint, region, path_style, self.profile, self.anonymous)

    def shared(self) -> S3Settings:
        """Fills in what this process has found in its environment and profile, for other processes.

        Without an endpoint they are left to choose the form of URLs, which depends on it.
        """
        found = self.resolved()
        return found if found.endpoint is not None else replace(found, path_style=self.path_style)

    def address_of(self, bucket: str) -> tuple[str | None, bool]:
        """Returns the endpoint of a bucket, and whether requests name the bucket in their paths.

        object_store, which obstore, deltalake and polars stand on, takes an endpoint as it is: with the bucket in the
        host's name it has to be there already. As for botocore, a bucket is in the path all the same if the endpoint
        is an IP address, or if its name cannot be in that of a host.

        REQUIRES: the settings are resolved.
        """
        parts = urlsplit(self.endpoint or _AWS)
        if self.path_style or _is_address(parts.hostname or "") or not _may_be_in_a_host(bucket, parts.scheme):
            return self.endpoint, True
        if self.endpoint is None:
            return None, False
        return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl().rstrip("/"), False


def credentials_of(settings: S3Settings) -> Credentials:
    """Finds the credentials of this process. Those of roles are renewed when they expire; see `FoundCredentials`.

    Raises:
        Unavailable: ``no-credentials``.
        Unsupported: ``storage-package``: the extra `s3` is not installed.
    """
    return _credentials_in(session_of(settings.profile))


def _credentials_in(session: Any) -> Credentials:
    found: Credentials | None = session.get_credentials()
    if found is None:
        raise Unavailable(
            "this process has no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
            "or run it under a role; for public data set the storage option anonymous = true",
            code="no-credentials",
        )
    return found


def plain_client(settings: S3Settings, connections: int, session: Any | None = None) -> Any:
    """Opens botocore's client, which repeats nothing. REQUIRES: the settings are resolved.

    Args:
        settings: How to reach S3.
        connections: How many requests may run at once.
        session: botocore's, which has the credentials; None: one of its own.
    """
    session = session or session_of(settings.profile)
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=REQUEST_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"addressing_style": "path" if settings.path_style else "virtual"},
        max_pool_connections=connections,
        # checksums in trailers, botocore's default, are unknown to many servers
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **({"signature_version": UNSIGNED} if settings.anonymous else {}),
    )
    if not settings.anonymous:
        _credentials_in(session)  # raises an error that says what is missing
    return session.create_client("s3", settings.region, endpoint_url=settings.endpoint, config=config)


def session_of(profile: str | None) -> Any:
    """Opens botocore's session.

    Raises:
        InvalidRequest: ``bad-storage-option``: there is no such profile.
        Unsupported: ``storage-package``.
    """
    try:
        from botocore.exceptions import ProfileNotFound
        from botocore.session import Session
    except ImportError as error:
        raise Unsupported(
            "tables in S3 need more packages: pip install 'lakehouse-tablestore[s3]'", code="storage-package"
        ) from error
    session = Session(profile=profile)
    try:
        session.get_scoped_config()
    except ProfileNotFound as error:
        raise InvalidRequest(
            f"{error}: name one of ~/.aws/config, or none and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            code="bad-storage-option",
        ) from error
    return session


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _may_be_in_a_host(bucket: str, scheme: str) -> bool:
    """Returns whether a host's name can contain the bucket: certificates of TLS cover one label only."""
    return _LABELS.fullmatch(bucket) is not None and (scheme == "http" or "." not in bucket)


def _endpoint_of(session: Any) -> str | None:
    """Returns the endpoint that the environment or the profile names, in the order of AWS's tools."""
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    return next(filter(None, named), None) or session.get_scoped_config().get("endpoint_url")


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"storage option {name} = {text!r}: write true or false", code="bad-storage-option")
    return text.lower() == "true"


def _unknown(name: str, known: list[str]) -> InvalidRequest:
    if any(word in name.lower() for word in _SECRET_WORDS):
        return InvalidRequest(
            f"storage option {name}: secrets are not options, which are stored and logged: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY in the environment of each process, or name a profile",
            code="bad-storage-option",
        )
    return InvalidRequest(f"there is no storage option {name}; there are {', '.join(known)}", code="bad-storage-option")


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise InvalidRequest(
            f"the endpoint of S3 (storage option endpoint, or AWS_ENDPOINT_URL) is {_without_login(endpoint)!r}: "
            "write a URL such as http://127.0.0.1:9000, without user and password",
            code="bad-storage-option",
        )


def _without_login(endpoint: str) -> str:
    scheme, separator, rest = endpoint.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
