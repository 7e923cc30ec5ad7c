import pytest
from dbt.tests.adapter.constraints import fixtures, test_constraints

SELECTED = """create or replace table <model_identifier> using delta as
select id, {color}, date_day from (
    {depends}select 'blue' as {color}, 1 as id, '2019-01-01' as date_day
) as model_subq"""


def of_spark(text: str) -> str:
    """Spark has no type ``text``, and a primary key of a column is no check."""
    return text.replace("text", "string").replace("primary key", "")


class NamesOfTypes:
    """Contracts compare columns by the names of types that PyHive has."""

    @pytest.fixture
    def string_type(self):
        return "STRING_TYPE"

    @pytest.fixture
    def int_type(self):
        return "INT_TYPE"

    @pytest.fixture
    def schema_string_type(self):
        return "STRING"

    @pytest.fixture
    def schema_int_type(self):
        return "INT"

    @pytest.fixture
    def data_types(self, int_type, schema_int_type, string_type, schema_string_type):
        return [
            ["1", schema_int_type, int_type],
            ['"1"', schema_string_type, string_type],
            ["true", "boolean", "BOOLEAN_TYPE"],
            ['array("1","2","3")', "array<string>", "ARRAY_TYPE"],
            ["array(1,2,3)", "array<int>", "ARRAY_TYPE"],
            ["cast('2019-01-01' as date)", "date", "DATE_TYPE"],
            ["cast('2019-01-01' as timestamp)", "timestamp", "TIMESTAMP_TYPE"],
            ["cast(1.0 AS DECIMAL(4, 2))", "decimal", "DECIMAL_TYPE"],
        ]


def wrong_models(order: str, name: str) -> dict[str, str]:
    schema = of_spark(fixtures.model_schema_yml)
    return {"my_model_wrong_order.sql": order, "my_model_wrong_name.sql": name, "constraints_schema.yml": schema}


class TestTableColumnsEqual(NamesOfTypes, test_constraints.BaseTableConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return wrong_models(fixtures.my_model_wrong_order_sql, fixtures.my_model_wrong_name_sql)


class TestViewColumnsEqual(NamesOfTypes, test_constraints.BaseViewConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return wrong_models(fixtures.my_model_view_wrong_order_sql, fixtures.my_model_view_wrong_name_sql)


class TestIncrementalColumnsEqual(NamesOfTypes, test_constraints.BaseIncrementalConstraintsColumnsEqual):
    @pytest.fixture(scope="class")
    def models(self):
        return wrong_models(fixtures.my_model_incremental_wrong_order_sql, fixtures.my_model_incremental_wrong_name_sql)


class Selected:
    @pytest.fixture(scope="class")
    def expected_sql(self):
        return SELECTED.format(color="color", depends="-- depends_on: <foreign_key_model_identifier>\n    ")


class TestTableDdl(Selected, test_constraints.BaseConstraintsRuntimeDdlEnforcement):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": fixtures.my_model_wrong_order_depends_on_fk_sql,
            "foreign_key_model.sql": fixtures.foreign_key_model_sql,
            "constraints_schema.yml": of_spark(fixtures.model_fk_constraint_schema_yml),
        }


class TestIncrementalDdl(Selected, test_constraints.BaseIncrementalConstraintsRuntimeDdlEnforcement):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": fixtures.my_model_incremental_wrong_order_depends_on_fk_sql,
            "foreign_key_model.sql": fixtures.foreign_key_model_sql,
            "constraints_schema.yml": of_spark(fixtures.model_fk_constraint_schema_yml),
        }


class TestModelDdl(Selected, test_constraints.BaseModelConstraintsRuntimeEnforcement):
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": fixtures.my_model_wrong_order_depends_on_fk_sql,
            "foreign_key_model.sql": fixtures.foreign_key_model_sql,
            "constraints_schema.yml": fixtures.constrained_model_schema_yml.replace("text", "string"),
        }


class TestQuotedColumn(test_constraints.BaseConstraintQuotedColumn):
    @pytest.fixture(scope="class")
    def models(self):
        schema = fixtures.model_quoted_column_schema_yml.replace("text", "string").replace('"from"', "`from`")
        return {"my_model.sql": fixtures.my_model_with_quoted_column_name_sql, "constraints_schema.yml": schema}

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return SELECTED.format(color="`from`", depends="")


class Violations:
    @pytest.fixture(scope="class")
    def expected_error_messages(self):
        return ["NOT NULL", "CHECK"]

    def assert_expected_error_messages(self, error_message, expected_error_messages):
        assert any(message in error_message for message in expected_error_messages)


class TestTableRollback(Violations, test_constraints.BaseConstraintsRollback):
    @pytest.fixture(scope="class")
    def models(self):
        return {"my_model.sql": fixtures.my_model_sql, "constraints_schema.yml": of_spark(fixtures.model_schema_yml)}


class TestIncrementalRollback(Violations, test_constraints.BaseIncrementalConstraintsRollback):
    @pytest.fixture(scope="class")
    def models(self):
        schema = of_spark(fixtures.model_schema_yml)
        return {"my_model.sql": fixtures.my_incremental_model_sql, "constraints_schema.yml": schema}
