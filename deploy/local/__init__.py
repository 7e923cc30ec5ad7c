"""Runs the parts of ``deploy/compose.yaml`` on this machine without containers: ``deploy/local.sh``.

    description  reads compose.yaml and settings.env: parts, and what they become on one machine. Pure
    servers      PostgreSQL, an S3 server, Kafka and a Spark cluster, in place of compose's images
    machine      starts parts in order, checks them, and stops what it has started

The commands, settings and health checks of our own parts are those of compose.yaml, so they are tried here as they are
there. Only names of hosts become addresses of loopback, ports become free ones, and secrets are in another folder.
"""
