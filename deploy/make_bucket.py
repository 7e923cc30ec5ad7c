"""Makes the bucket of ``$TABLESTORE_WAREHOUSE`` if it is not there: for S3 servers that begin empty.

It runs with the settings and credentials of the product: ``python deploy/make_bucket.py``.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import botocore.config
import botocore.session
from botocore.exceptions import ClientError


def main() -> None:
    """Makes the bucket; an error of the server ends the program."""
    options = dict(pair.split("=", 1) for pair in os.environ["TABLESTORE_STORAGE"].split(";"))
    bucket = urlsplit(os.environ["TABLESTORE_WAREHOUSE"]).netloc
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=options.get("endpoint"),
        region_name=options.get("region"),
        config=botocore.config.Config(s3={"addressing_style": "path"}),
    )
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": options.get("region")})


if __name__ == "__main__":
    main()
