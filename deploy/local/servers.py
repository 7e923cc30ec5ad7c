"""PostgreSQL, an S3 server, Kafka and a Spark cluster on this machine, in place of compose.yaml's images.

They are the servers of the tests, from packages that ``make env`` and ``make jars`` install: PostgreSQL and moto from
wheels, Kafka and Spark from jars. With versitygw (``make versitygw``) S3 is that of compose.yaml; moto keeps objects in
memory. They hold small data, keep it as long as they run, and die with the thread that started them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.description import Service
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import MotoServer, NotBuilt, S3Endpoint, VersityServer, versitygw
from tests.servers.spark_cluster import SparkCluster

__all__ = ["SERVED", "Servers"]

_OF_KAFKA = ("KAFKA_TRANSACTION_", "KAFKA_OFFSETS_", "KAFKA_SHARE_", "KAFKA_AUTO_")
"""The settings of compose.yaml's broker that a broker of this machine has, too: those that are not about addresses."""


@dataclass
class Servers:
    """The servers that run.

    Attributes:
        folder: Their files.
        secrets: The folder with the secrets of the deployment: servers write their own there.
        say: Gets a line for each server.
        addresses: The host and port at which a service of compose.yaml is served here.
    """

    folder: Path
    secrets: Path
    say: Callable[[str], None]
    addresses: dict[str, str] = field(default_factory=dict)
    postgres: PostgresServer | None = None
    s3: S3Endpoint | None = None
    kafka: KafkaBroker | None = None
    spark: SparkCluster | None = None

    def start(self, service: Service, stack: ExitStack) -> None:
        """Starts what serves a service of compose.yaml; the stack stops it."""
        SERVED[service.name](self, service, stack)

    def start_postgres(self, service: Service, stack: ExitStack) -> None:
        """Starts PostgreSQL on a socket in a folder of its own, where only this machine reaches it."""
        self.postgres = stack.enter_context(PostgresServer())
        self._keep("database-url", self.postgres.url)
        self.say("PostgreSQL on a socket of its own")

    def start_s3(self, service: Service, stack: ExitStack) -> None:
        """Starts versitygw if it is built, else moto."""
        try:
            versitygw()
            self.s3 = stack.enter_context(VersityServer())
            kind = "versitygw"
        except NotBuilt as error:
            self.say(f"{error} Until then moto serves S3 here, from memory.")
            self.s3 = stack.enter_context(MotoServer())
            kind = "moto"
        keys = f"aws_access_key_id = {self.s3.access_key}\naws_secret_access_key = {self.s3.secret_key}"
        self._keep("aws-credentials", f"[default]\n{keys}")
        self._address(service, self.s3.endpoint.removeprefix("http://"))
        self.say(f"S3 at {self.s3.endpoint} ({kind})")

    def start_kafka(self, service: Service, stack: ExitStack) -> None:
        """Starts a broker with the settings of compose.yaml's."""
        self.kafka = stack.enter_context(KafkaBroker(self.folder / "kafka", _kafka_settings(service.environment)))
        self._address(service, self.kafka.bootstrap)
        self.say(f"Kafka at {self.kafka.bootstrap}")

    def start_spark(self, service: Service, stack: ExitStack) -> None:
        """Starts a master and two workers, which have only a bare Python, and AWS's variables as in compose.yaml."""
        of_aws = {name: value for name, value in service.environment.items() if name.startswith("AWS_")}
        self.spark = stack.enter_context(SparkCluster(self.folder / "spark", environment=of_aws))
        self._address(service, self.spark.url.removeprefix("spark://"))
        self.say(f"Spark at {self.spark.url}, {len(self.spark.workers)} workers")

    def _address(self, service: Service, address: str) -> None:
        self.addresses[service.name] = address

    def _keep(self, name: str, text: str) -> None:
        path = self.secrets / name
        path.unlink(missing_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


def _nothing(servers: Servers, service: Service, stack: ExitStack) -> None:
    """For services that another one serves here."""


SERVED: Mapping[str, Callable[[Servers, Service, ExitStack], None]] = {
    "postgres": Servers.start_postgres,
    "s3": Servers.start_s3,
    "s3-folder": _nothing,
    "kafka": Servers.start_kafka,
    "spark-master": Servers.start_spark,
    "spark-worker": _nothing,
}
"""The services of compose.yaml that are other people's programs, and what starts them here."""


def _kafka_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of Kafka from variables of its image: KAFKA_NODE_ID is ``node.id``."""
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(_OF_KAFKA)
    }
