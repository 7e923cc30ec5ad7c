import re
from pathlib import Path

import pytest
from dbt.tests.adapter.incremental import (
    test_incremental_microbatch,
    test_incremental_on_schema_change,
    test_incremental_predicates,
    test_incremental_unique_id,
)
from dbt.tests.adapter.incremental.test_incremental_merge_exclude_columns import BaseMergeExcludeColumns

PAGE = Path(__file__).parents[4] / "docs" / "sql.md"


class TestUniqueKeyByMerge(test_incremental_unique_id.BaseIncrementalUniqueKey):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"models": {"+incremental_strategy": "merge"}}


class TestSchemaChange(test_incremental_on_schema_change.BaseIncrementalOnSchemaChange):
    """With the macro that our page has, since dbt-spark itself drops no column of a Delta table."""

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"models": {"+incremental_strategy": "merge", "+unique_key": "id"}}

    @pytest.fixture(scope="class")
    def macros(self):
        [macro] = re.findall(r"{% macro spark__alter_relation.*?{% endmacro %}", PAGE.read_text(), re.DOTALL)
        return {"alter_relation.sql": macro}


class TestSchemaChangeByAppend(TestSchemaChange):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"models": {"+incremental_strategy": "append"}}


class TestPredicates(test_incremental_predicates.BaseIncrementalPredicates):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"models": {"+incremental_strategy": "merge", "+incremental_predicates": ["dbt_internal_dest.id != 2"]}}

    @pytest.fixture(scope="class")
    def models(self):
        model = test_incremental_predicates.models__delete_insert_incremental_predicates_sql
        bigint = re.sub(r"select (\d) as id", r"select cast(\1 as bigint) as id", model)  # as the seed's
        return {"delete_insert_incremental_predicates.sql": bigint}


class TestPredicatesByTheirOtherName(TestPredicates):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"models": {"+incremental_strategy": "merge", "+predicates": ["dbt_internal_dest.id != 2"]}}


class TestMicrobatch(test_incremental_microbatch.BaseMicrobatch):
    """With the partitions that dbt-spark asks for."""

    @pytest.fixture(scope="class")
    def microbatch_model_sql(self):
        model = test_incremental_microbatch._microbatch_model_sql
        partitioned = model.replace("unique_key='id'", "partition_by=['day']")
        return partitioned.replace("select *", "select *, cast(event_time as date) as day")
