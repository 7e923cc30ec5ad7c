import pytest
from dbt.tests.adapter.utils import test_last_day, test_listagg, test_split_part, test_timestamps
from dbt.tests.adapter.utils.data_types import test_type_float, test_type_int, test_type_numeric
from dbt.tests.adapter.utils.data_types.test_type_bigint import BaseTypeBigInt
from dbt.tests.adapter.utils.data_types.test_type_boolean import BaseTypeBoolean
from dbt.tests.adapter.utils.data_types.test_type_string import BaseTypeString
from dbt.tests.adapter.utils.data_types.test_type_timestamp import BaseTypeTimestamp
from dbt.tests.adapter.utils.fixture_listagg import models__test_listagg_sql, models__test_listagg_yml
from dbt.tests.adapter.utils.test_any_value import BaseAnyValue
from dbt.tests.adapter.utils.test_array_append import BaseArrayAppend
from dbt.tests.adapter.utils.test_array_concat import BaseArrayConcat
from dbt.tests.adapter.utils.test_array_construct import BaseArrayConstruct
from dbt.tests.adapter.utils.test_bool_or import BaseBoolOr
from dbt.tests.adapter.utils.test_cast import BaseCast
from dbt.tests.adapter.utils.test_cast_bool_to_text import BaseCastBoolToText
from dbt.tests.adapter.utils.test_concat import BaseConcat
from dbt.tests.adapter.utils.test_current_timestamp import BaseCurrentTimestampNaive
from dbt.tests.adapter.utils.test_date import BaseDate
from dbt.tests.adapter.utils.test_date_spine import BaseDateSpine
from dbt.tests.adapter.utils.test_date_trunc import BaseDateTrunc
from dbt.tests.adapter.utils.test_dateadd import BaseDateAdd
from dbt.tests.adapter.utils.test_datediff import BaseDateDiff
from dbt.tests.adapter.utils.test_equals import BaseEquals
from dbt.tests.adapter.utils.test_escape_single_quotes import BaseEscapeSingleQuotesBackslash
from dbt.tests.adapter.utils.test_except import BaseExcept
from dbt.tests.adapter.utils.test_generate_series import BaseGenerateSeries
from dbt.tests.adapter.utils.test_get_intervals_between import BaseGetIntervalsBetween
from dbt.tests.adapter.utils.test_get_powers_of_two import BaseGetPowersOfTwo
from dbt.tests.adapter.utils.test_hash import BaseHash
from dbt.tests.adapter.utils.test_intersect import BaseIntersect
from dbt.tests.adapter.utils.test_length import BaseLength
from dbt.tests.adapter.utils.test_null_compare import BaseMixedNullCompare, BaseNullCompare
from dbt.tests.adapter.utils.test_position import BasePosition
from dbt.tests.adapter.utils.test_replace import BaseReplace
from dbt.tests.adapter.utils.test_right import BaseRight
from dbt.tests.adapter.utils.test_safe_cast import BaseSafeCast
from dbt.tests.adapter.utils.test_string_literal import BaseStringLiteral


class TestTypeFloat(test_type_float.BaseTypeFloat):
    @pytest.fixture(scope="class")
    def seeds(self):
        return {"expected.csv": test_type_float.seeds__expected_csv, "expected.yml": seed_of("float_col", "float")}


class TestTypeInt(test_type_int.BaseTypeInt):
    @pytest.fixture(scope="class")
    def seeds(self):
        return {"expected.csv": test_type_int.seeds__expected_csv, "expected.yml": seed_of("int_col", "int")}


class TestTypeNumeric(test_type_numeric.BaseTypeNumeric):
    def numeric_fixture_type(self):
        return "decimal(28,6)"


def seed_of(column: str, type_name: str) -> str:
    """The type of a seed's column, which would be a double or a bigint: EXCEPT distinguishes them."""
    return f"version: 2\nseeds:\n  - name: expected\n    config:\n      column_types: {{{column}: {type_name}}}\n"


class TestLastDay(test_last_day.BaseLastDay):
    """Without the day of nothing, which a seed of Spark reads as text."""

    @pytest.fixture(scope="class")
    def seeds(self):
        days = [("month", "2018-01-31"), ("quarter", "2018-03-31"), ("year", "2018-12-31")]
        rows = [f"2018-01-02,{part},{day}" for part, day in days]
        return {"data_last_day.csv": "\n".join(["date_day,date_part,result", *rows])}


class TestListagg(test_listagg.BaseListagg):
    """Without the order of values, which dbt-spark does not have."""

    @pytest.fixture(scope="class")
    def models(self):
        calculated = models__test_listagg_sql.partition("calculate as (")[0]
        return {
            "test_listagg.yml": models__test_listagg_yml,
            "test_listagg.sql": self.interpolate_macro_namespace(f"{calculated}{UNORDERED}", "listagg"),
        }


UNORDERED = """calculate as (
    select group_col, {{ listagg('string_text', "', '") }} as actual, 'comma_whitespace_unordered' as version
    from data where group_col = 3 group by group_col
    union all
    select group_col, {{ listagg('DISTINCT string_text', "','") }} as actual, 'distinct_comma' as version
    from data where group_col = 3 group by group_col
    union all
    select group_col, {{ listagg('string_text') }} as actual, 'no_params' as version
    from data where group_col = 3 group by group_col
)
select calculate.actual, data_output.expected
from calculate left join data_output
on calculate.group_col = data_output.group_col and calculate.version = data_output.version
"""


class TestSplitPart(test_split_part.BaseSplitPart):
    @pytest.fixture(scope="class")
    def seeds(self):
        rows = ["a|b|c,|,a,b,c,c", "1|2|3,|,1,2,3,3", "EMPTY|EMPTY|EMPTY,|,EMPTY,EMPTY,EMPTY,EMPTY"]
        return {"data_split_part.csv": "\n".join(["parts,split_on,result_1,result_2,result_3,result_4", *rows])}


class TestCurrentTimestamps(test_timestamps.BaseCurrentTimestamps):
    @pytest.fixture(scope="class")
    def models(self):
        return {"get_current_timestamp.sql": "select {{ current_timestamp() }} as current_timestamp"}

    @pytest.fixture(scope="class")
    def expected_schema(self):
        return {"current_timestamp": "timestamp"}

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return "select current_timestamp() as current_timestamp"
