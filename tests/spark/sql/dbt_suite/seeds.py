from dbt.tests.adapter.empty.test_empty import BaseTestEmpty, BaseTestEmptyInlineSourceRef, BaseTestEmptySeedFlag
from dbt.tests.adapter.sample_mode.test_sample_mode import BaseSampleModeTest
from dbt.tests.adapter.simple_seed import test_seed
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseSeedConfigFullRefreshOff,
    BaseSeedCustomSchema,
    BaseSeedParsing,
    BaseSeedWithEmptyDelimiter,
    BaseSeedWithUniqueDelimiter,
    BaseSeedWithWrongDelimiter,
    BaseSimpleSeedEnabledViaConfig,
    BaseTestEmptySeed,
)


class ViewsStay:
    """A view on a table that is created anew goes with the old one in PostgreSQL, and stays in Spark."""

    def _check_relation_end_state(self, run_result, project, exists):
        super()._check_relation_end_state(run_result, project, exists=True)


class TestBasicSeeds(ViewsStay, test_seed.BaseBasicSeedTests):
    pass


class TestSeedConfigFullRefreshOn(ViewsStay, test_seed.BaseSeedConfigFullRefreshOn):
    pass
