from dbt.tests.adapter.grants import test_invalid_grants, test_model_grants
from dbt.tests.adapter.grants.test_incremental_grants import BaseIncrementalGrants
from dbt.tests.adapter.grants.test_seed_grants import BaseSeedGrants
from dbt.tests.adapter.grants.test_snapshot_grants import BaseSnapshotGrants


class TestModelGrants(test_model_grants.BaseModelGrants):
    def privilege_grantee_name_overrides(self):
        return {**super().privilege_grantee_name_overrides(), "insert": "modify"}


class TestInvalidGrants(test_invalid_grants.BaseInvalidGrants):
    def grantee_does_not_exist_error(self):
        return "RESOURCE_DOES_NOT_EXIST"

    def privilege_does_not_exist_error(self):
        return "Action Unknown"
