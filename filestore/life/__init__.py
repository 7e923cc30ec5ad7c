"""Operations on old versions and files: expiry, tags, consumers, rollback, and the removal of orphans."""
