"""Settings of Spark sessions: S3 as our own clients reach it, lists that are joined, and no secrets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from filestore.errors import InvalidRequest
from filestore.storage.s3_settings import S3Settings
from tablestore.cli import app
from tablestore.spark import settings as module
from tablestore.spark import spark_session
from tablestore.spark.archive import ArchiveInfo
from tablestore.spark.interpreter import started_with_this_python
from tablestore.spark.settings import archive_settings, joined, program_settings, refuse_secrets, s3_settings

S3A = "spark.hadoop.fs.s3a."


def test_s3_with_an_endpoint() -> None:
    found = s3_settings(S3Settings("http://127.0.0.1:9000", "eu-west-1", path_style=True))
    assert found == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{S3A}endpoint": "http://127.0.0.1:9000",
        f"{S3A}endpoint.region": "eu-west-1",
        f"{S3A}path.style.access": "true",
        f"{S3A}connection.ssl.enabled": "false",
        f"{S3A}aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    }


def test_s3_of_aws() -> None:
    found = s3_settings(S3Settings(None, "eu-west-1", path_style=False))
    assert f"{S3A}endpoint" not in found
    assert found[f"{S3A}path.style.access"] == "false"
    assert s3_settings(S3Settings("https://s3.example", "a"))[f"{S3A}connection.ssl.enabled"] == "true"


def test_a_profile_is_named_to_both_jvms_and_excludes_other_credentials() -> None:
    found = s3_settings(S3Settings(None, "a", profile="lake"))
    assert found[f"{S3A}aws.credentials.provider"].endswith(".ProfileCredentialsProvider")
    assert found["spark.driver.extraJavaOptions"] == found["spark.executor.extraJavaOptions"] == "-Daws.profile=lake"


def test_public_data_needs_no_credentials() -> None:
    found = s3_settings(S3Settings(None, "a", anonymous=True))
    assert found[f"{S3A}aws.credentials.provider"] == "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"


def test_later_settings_replace_earlier_ones_and_lists_grow() -> None:
    one = {"spark.jars": "a.jar,b.jar", "spark.driver.extraJavaOptions": "-Da=1", "spark.app": "x"}
    two = {"spark.jars": "b.jar,c.jar", "spark.driver.extraJavaOptions": "-Xss1m -Db=2", "spark.app": "y"}
    assert joined(one, two) == {
        "spark.jars": "a.jar,b.jar,c.jar",
        "spark.driver.extraJavaOptions": "-Da=1 -Xss1m -Db=2",
        "spark.app": "y",
    }


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.bucket.lake.session.token",
        "spark.executorEnv.AWS_ACCESS_KEY_ID",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY",
        "spark.hadoop.fs.s3a.encryption.key",
    ],
)
def test_secrets_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as raised:
        spark_session("never started", {name: "very secret"})
    assert raised.value.code == "spark-secret"
    assert "very secret" not in str(raised.value)


def test_a_secret_among_javas_options_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="extraJavaOptions") as raised:
        spark_session("never started", {"spark.executor.extraJavaOptions": "-Xmx1g -Daws.secretAccessKey=very-secret"})
    assert "very-secret" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.s3a.security.credential.provider.path",
        "spark.executorEnv.AWS_WEB_IDENTITY_TOKEN_FILE",
        "spark.executorEnv.AWS_SHARED_CREDENTIALS_FILE",
        "spark.executorEnv.AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.ssl.keyStorePassword",  # Spark's own, which its own rules hide
    ],
)
def test_other_settings_pass(name: str) -> None:
    refuse_secrets({name: "x"})


def test_executors_import_from_the_archive_and_find_their_python_by_name(tmp_path: Path) -> None:
    info = ArchiveInfo("0.1.0", "3.12", "linux-x86_64", ())
    assert archive_settings(tmp_path / "p.tar", info) == {
        "spark.archives": f"{tmp_path}/p.tar#tablestore-packages",
        "spark.executorEnv.PYTHONPATH": "./tablestore-packages",
        "spark.pyspark.python": "python3.12",
        "spark.python.daemon.module": "tablestore.spark.daemon",
    }


def test_the_driver_finds_this_python_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planners run beside the driver, and Spark starts them by the same name as tasks."""
    own = str(Path(sys.executable).parent)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    before = dict(os.environ)
    with started_with_this_python("python3.11"):
        assert os.environ["PYSPARK_PYTHON"] == "python3.11"
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
        assert os.environ["PATH"] == f"{own}:/usr/bin"
    assert dict(os.environ) == before, "tasks of the next session, of this machine, would run in another Python"


def test_a_python_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/opt/driver")
    monkeypatch.setenv("PATH", "/usr/bin")
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PATH")
    with started_with_this_python("python3.11"):
        assert [os.environ[name] for name in names] == ["/opt/python", "/opt/driver", "/usr/bin"]
    assert [os.environ[name] for name in names] == ["/opt/python", "/opt/driver", "/usr/bin"]


def test_the_command_prints_settings_for_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "delta_jars", lambda: [Path("/jars/delta.jar")])
    monkeypatch.setattr(module, "s3a_jars", lambda: [Path("/jars\\s3.jar")])
    monkeypatch.setattr(module, "has_sql_jar", lambda: False)
    plain = CliRunner().invoke(app, ["spark-settings"]).stdout.splitlines()
    assert "spark.jars /jars/delta.jar" in plain
    assert "spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension" in plain
    assert not any("s3" in line for line in plain)
    with_s3 = CliRunner().invoke(app, ["spark-settings", "--storage", "endpoint=http://a:9;region=b"]).stdout
    assert "spark.jars /jars/delta.jar,/jars\\\\s3.jar" in with_s3.splitlines(), "Java reads backslashes as escapes"
    assert "spark.hadoop.fs.s3a.endpoint http://a:9" in with_s3.splitlines()
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    by_environment = CliRunner().invoke(app, ["spark-settings", "--s3"]).stdout.splitlines()
    assert "spark.hadoop.fs.s3a.endpoint.region eu-north-1" in by_environment


def test_the_jar_of_sql_comes_with_its_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "delta_jars", lambda: [Path("/jars/delta.jar")])
    monkeypatch.setattr(module, "has_sql_jar", lambda: True)
    monkeypatch.setattr(module, "sql_jar", lambda: Path("/jars/sql.jar"))
    found = program_settings()
    assert found["spark.jars"] == "/jars/delta.jar,/jars/sql.jar"
    assert found["spark.sql.extensions"].split(",") == [
        "io.delta.sql.DeltaSparkSessionExtension",
        "tablestore.spark.TablestoreExtensions",
    ]


def test_the_command_names_catalogs_for_sql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "delta_jars", list)
    monkeypatch.setattr("tablestore.spark.sql.jar._JAR", tmp_path / "sql.jar")
    monkeypatch.chdir(tmp_path)
    asked = ["spark-settings", "--sql", "lake=warehouse", "--sql", "far=http://127.0.0.1:8080"]
    refused = CliRunner().invoke(app, asked)
    assert "no-sql-jar" in refused.output or getattr(refused.exception, "code", "") == "no-sql-jar"
    (tmp_path / "sql.jar").touch()
    found = CliRunner().invoke(app, asked).stdout.splitlines()
    assert "spark.sql.catalog.lake tablestore.spark.TablestoreCatalog" in found
    assert f"spark.sql.catalog.lake.uri {tmp_path}/warehouse" in found
    assert "spark.sql.catalog.far.uri http://127.0.0.1:8080" in found
    assert f"spark.driver.extraClassPath {tmp_path}/sql.jar" in found  # else sessions of a Thrift server lack the jar


def test_settings_name_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "delta_jars", list)
    monkeypatch.setattr(module, "s3a_jars", list)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "THEKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "THESECRET")
    found = program_settings(storage_options={})
    assert found["spark.hadoop.fs.s3.impl"]
    assert not {"THEKEY", "THESECRET"} & set(found.values())
