"""compose.yaml as parts of one machine: order, addresses and ports, secrets. No process is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.description import Service, in_order, left_out, on_this_machine, read, settings_of
from tests.deploy.test_files import DEPLOY

SECRETS = Path("/elsewhere")
PORTS = {("service", 8080): 20001, ("s3", 7070): 20002, ("spark-master", 8080): 20003, ("compactor", 9184): 20004}


def put(name: str, *texts: str) -> tuple[str, ...]:
    return on_this_machine(Service(name, "image", command=texts), PORTS, SECRETS).command


def test_names_of_services_become_addresses_everywhere() -> None:
    assert put("client", "endpoint=http://s3:7070;region=eu", "http://service:8080/api") == (
        "endpoint=http://127.0.0.1:20002;region=eu",
        "http://127.0.0.1:20001/api",
    )


@pytest.mark.parametrize(
    "text",
    [
        "http://my-s3:7070",
        "http://s3.example:7070",
        "s3:70701",
        "s3://lake/x",
        "tablestore.service:8080",
        "http://s3:7071",
    ],
)
def test_other_names_and_ports_stay(text: str) -> None:
    assert put("client", text) == (text,)


def test_a_service_finds_its_own_port_by_number() -> None:
    assert put("service", "8080", "http://127.0.0.1:8080/ready", "0.0.0.0") == (
        "20001",
        "http://127.0.0.1:20001/ready",
        "127.0.0.1",
    )
    assert put("client", "8080", "http://127.0.0.1:8080/ready") == ("8080", "http://127.0.0.1:8080/ready")


def test_a_host_alone_is_an_address_in_a_variable_and_not_in_a_command() -> None:
    """`tablestore compactor` in the service `compactor` is a command."""
    service = Service("compactor", "image", ("tablestore", "compactor"), {"HOST": "spark-master", "NAME": "other"})
    here = on_this_machine(service, PORTS, SECRETS)
    assert here.command == ("tablestore", "compactor")
    assert dict(here.environment) == {"HOST": "127.0.0.1", "NAME": "other"}


def test_secrets_and_files_are_in_other_folders() -> None:
    service = Service("client", "image", ("python", "/x.py", "/run/secrets/token"), files={"/x.py": Path("/here/x.py")})
    assert on_this_machine(service, {}, SECRETS).command == ("python", "/here/x.py", "/elsewhere/token")


def test_environment_and_check_are_put_in_place_as_the_command_is() -> None:
    service = Service("service", "image", environment={"PORT": "8080"}, check=("ask", "http://127.0.0.1:8080"))
    here = on_this_machine(service, PORTS, SECRETS)
    assert dict(here.environment) == {"PORT": "20001"}
    assert here.check == ("ask", "http://127.0.0.1:20001")


def test_what_is_left_out_is_named_in_no_variable() -> None:
    """Else a service would wait for brokers that are not there."""
    service = Service("client", "image", environment={"A": "x=http://s3:7070;y=1", "B": "my-s3:7070", "C": "s3://lake"})
    assert dict(left_out(service, ["s3", "kafka"]).environment) == {"B": "my-s3:7070", "C": "s3://lake"}
    assert left_out(service, []) == service


def test_what_a_service_needs_starts_before_it() -> None:
    services = {
        "a": Service("a", "image", needs=("b", "c")),
        "b": Service("b", "image", needs=("c",)),
        "c": Service("c", "image"),
        "d": Service("d", "image"),
    }
    assert [service.name for service in in_order(services, ["a"])] == ["c", "b", "a"]
    assert [service.name for service in in_order(services, list(services))] == ["c", "b", "a", "d"]
    assert in_order(services, []) == []


def test_services_that_need_each_other_are_an_error() -> None:
    services = {"a": Service("a", "image", needs=("b",)), "b": Service("b", "image", needs=("a",))}
    with pytest.raises(ValueError, match="a needs b needs a"):
        in_order(services, ["a"])


def test_a_value_of_a_setting_is_all_behind_the_first_sign() -> None:
    assert settings_of("# x=1\n\nA=b=c;d=e\nB=\nC= 'x' \n") == {"A": "b=c;d=e", "B": "", "C": " 'x' "}


def test_compose_is_read() -> None:
    found = read(DEPLOY)
    service = found["service"]
    assert service.command == ("tablestore", "serve")
    assert service.environment["TABLESTORE_WAREHOUSE"] == "s3://lake/warehouse"
    assert (service.ports, service.needs, service.stop_s) == ((8080,), ("bucket", "postgres"), 15.0)
    assert found["compactor"].stop_s == 300.0
    assert found["bucket"].done_before
    assert not service.done_before
    assert found["bucket"].files == {"/make_bucket.py": DEPLOY / "make_bucket.py"}
    assert found["spark-worker"].replicas == 2
    assert [name for name, one in found.items() if one.profiles] == ["client"]
    names = [one.name for one in in_order(found, ["compactor"])]
    assert names.index("s3") < names.index("bucket") < names.index("service") < names.index("compactor")
